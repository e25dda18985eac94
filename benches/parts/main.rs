//! What the parts of a step cost, each alone: the rules, the codec, an expression, a schema, a commit.
//!
//! `cargo bench --bench parts` times them. `cargo bench --bench parts -- --count PART TIMES` only does a part so many times, for
//! a tool that counts instructions: `scripts/instructions.py` does so and compares with `benches/instructions.txt`.

mod work;

use std::hint::black_box;
use work::{Commits, Life};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match &arguments[..] {
        [flag, part, times] if flag == "--count" => count(part, times.parse().expect("TIMES is a number")),
        _ => divan::main(),
    }
}

/// Does a part so many times. What comes before and after costs the same whatever the number is.
fn count(part: &str, times: u32) {
    let life = Life::new();
    match part {
        "decide" => (0..times).for_each(|_| drop(black_box(life.decide()))),
        "evolve" => (0..times).for_each(|_| drop(black_box(life.evolve()))),
        "encode" => (0..times).for_each(|_| drop(black_box(life.encode()))),
        "decode" => (0..times).for_each(|_| drop(black_box(life.decode()))),
        "expression" => (0..times).for_each(|_| drop(black_box(life.expression()))),
        "schema" => (0..times).for_each(|_| life.schema()),
        "commit" => {
            let commits = Commits::new();
            (0..times).for_each(|_| commits.commit());
        }
        other => panic!("no part is called {other:?}"),
    }
}

/// All decisions of an execution of ten task steps: start, ten times dispatch and completion.
#[divan::bench]
fn decide(bencher: divan::Bencher) {
    let life = Life::new();
    bencher.bench_local(|| life.decide());
}

/// The state of that execution, folded from its events.
#[divan::bench]
fn evolve(bencher: divan::Bencher) {
    let life = Life::new();
    bencher.bench_local(|| life.evolve());
}

/// Its events as stored bytes, one append for each step.
#[divan::bench]
fn encode(bencher: divan::Bencher) {
    let life = Life::new();
    bencher.bench_local(|| life.encode());
}

/// And back.
#[divan::bench]
fn decode(bencher: divan::Bencher) {
    let life = Life::new();
    bencher.bench_local(|| life.decode());
}

/// An expression that goes through ten orders.
#[divan::bench]
fn expression(bencher: divan::Bencher) {
    let life = Life::new();
    bencher.bench_local(|| life.expression());
}

/// A schema on an order of ten items.
#[divan::bench]
fn schema(bencher: divan::Bencher) {
    let life = Life::new();
    bencher.bench_local(|| life.schema());
}

/// A commit of 64 steps of as many executions to SQLite, with its sync.
#[divan::bench(sample_count = 200, sample_size = 1)]
fn commit(bencher: divan::Bencher) {
    let commits = Commits::new();
    bencher.bench_local(|| commits.commit());
}
