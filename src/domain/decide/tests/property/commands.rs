//! What callers, workers and operators may ask at any moment.

use super::world::{Life, World};
use super::*;
use crate::domain::{decide::results, query};

impl World {
    /// Asks something of some execution.
    pub(super) fn command(&mut self) {
        let index = self.any_life();
        let command = self.random_command(index);
        let begins_deletion = matches!(command, Command::BeginDeletion { .. });
        if self.decide(index, command).is_ok() && begins_deletion && self.lives[index].run.state.is_deleting() {
            let now = self.now;
            self.lives[index].deletion.get_or_insert(now);
        }
    }

    fn random_command(&mut self, index: usize) -> Command {
        let now = self.now;
        let (random, Life { run, history, .. }) = (&mut self.random, &self.lives[index]);
        let unit = match history.units.len() {
            0 => arc("s0"),
            count if random.one_in(2) => history.units[count - 1 - random.below(count.min(4))].clone(),
            count => history.units[random.below(count)].clone(),
        };
        let newest = history.deliveries(&unit);
        let back = u32::try_from(random.pick(&[0, 0, 0, 1, 2])).unwrap();
        let delivery = reference(&unit, newest.saturating_sub(back).max(u32::from(random.one_in(8))));
        let waiting: Vec<Unit> = run.state.waiting().map(|waiting| waiting.unit).collect();
        let out: Vec<DeliveryRef> = history.out().map(|(unit, delivery)| reference(unit, delivery)).collect();
        // For most it is one that is out.
        let delivery = if out.is_empty() || random.one_in(4) { delivery } else { out[random.below(out.len())].clone() };
        let (unit, number) = (delivery.unit.clone(), delivery.delivery);
        let reason = random.pick(&[
            EndReason::SessionLost,
            EndReason::NotListed,
            EndReason::Released,
            EndReason::Unregistered,
            EndReason::NotSent,
        ]);
        let progress = random.one_in(2).then(|| json("1"));
        let key = u8::try_from(random.below(4)).unwrap();
        let request = random.one_in(2).then(|| request(key, u8::from(random.one_in(9))));
        match random.below(38) {
            0..=8 if !waiting.is_empty() => dispatch(&waiting[random.below(waiting.len())]),
            0 => dispatch_to(&unit, random.pick(&[WIDE, 0])),
            1..=12 => complete(&unit, number, random.pick(&["1", "1", "2", "\"wrong\""])),
            13..=15 => fail(&unit, number, random.pick(&["E", "F"])),
            16 => fail_for_good(&unit, number, "E"),
            17 => hold_command(&unit, number),
            18..=19 | 34..=36 => Command::EndDelivery { delivery, reason, progress },
            20 => Command::MissBeat { delivery, progress },
            21..=23 => Command::Signal {
                name: arc(random.pick(&["go", "go", "note", "note", "unknown"])),
                payload: json(random.pick(&["1", "2", "3", "\"x\""])),
                expire_time: random.one_in(3).then(|| at(now + random.pick(&[-1.0, 4.0, 10.0]))),
                request,
            },
            24 if random.one_in(2) => Command::Cancel { reason: arc("enough"), request },
            24 if random.one_in(if index == 0 { 10 } else { 3 }) => Command::Terminate { reason: arc("stop"), request },
            24 | 37 if random.one_in(2) => Command::Pause { reason: arc("wait"), request },
            25 => Command::Resume { request },
            26 => {
                let obstacle = random.one_in(8).then_some(Obstacle::IdTaken);
                Command::Retry { obstacle, request }
            }
            27 if random.one_in(2) => Command::BeginDeletion { request },
            28 if random.one_in(4) => {
                let name = arc(random.pick(&sample::SIGNALS));
                Command::SignalFrom { sender: [key; 16], name, payload: json("2") }
            }
            _ => {
                let (mut held, mut early) = (Vec::new(), Vec::new());
                for check in run.state.checks_due(at(now)) {
                    match random.below(4) {
                        0 | 1 => held.push(check),
                        2 => early.push(check),
                        _ => {}
                    }
                }
                Command::Wake { held, early }
            }
        }
    }

    /// Repeats an execution from a step on, with what it gave so far.
    pub(super) fn rerun(&mut self) {
        let index = self.any_life();
        let state = &self.lives[index].run.state;
        let (definition, input) = (state.definition().clone(), state.input().clone());
        let from = self.random.pick(&["s0", "s1", "s2", "s3"]);
        let Some(results) = results(state, from) else { return };
        assert!(results.iter().all(|result| *result.step != *from), "the step itself runs again");
        *self.met.entry("Rerun".into()).or_default() += 1;
        let id = ExecutionId::parse(&format!("again-{}", self.lives.len())).unwrap();
        let start = Start { id, results, ..a_start(input.as_str()) };
        self.start(definition, start).expect("nothing is asked of the input");
    }

    /// A query says the same of a state and of its snapshot.
    pub(super) fn query(&mut self) {
        let index = self.any_life();
        let state = &self.lives[index].run.state;
        let restored = State::from_bytes(state.definition().clone(), &state.to_bytes()).expect("a snapshot is whole");
        for name in state.definition().queries.keys() {
            assert_eq!(query::evaluate(state, name), query::evaluate(&restored, name));
        }
        assert!(query::evaluate(state, "unknown").is_err());
    }
}

fn hold_command(unit: &str, delivery: u32) -> Command {
    super::super::hold(unit, delivery)
}
