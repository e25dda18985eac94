//! Faults stop, workers and callers answer: everything ends.

use super::*;

/// Rounds after which what loops is cancelled, and after which nothing may be open.
const PATIENCE: usize = 120;
const ROUNDS: usize = 400;

impl World {
    /// Answers all that waits until everything has ended.
    pub(super) fn drain(&mut self) {
        self.has_faults = false;
        for round in 0..ROUNDS {
            let is_open = |index: &usize| {
                let state = &self.lives[*index].run.state;
                !self.lives[*index].is_removed && (!state.is_closed() || state.has_pending())
            };
            let open: Vec<usize> = (0..self.lives.len()).filter(is_open).collect();
            if open.is_empty() && self.flights.is_empty() {
                return;
            }
            self.now += if round % 20 == 19 { 1_000.0 } else { 1.0 };
            for _ in 0..self.flights.len() {
                self.land(0);
            }
            for index in open {
                self.answer(index);
                if round == PATIENCE {
                    let _ = self.decide(index, cancel());
                }
            }
        }
        let open = self.lives.iter().filter(|life| !life.run.state.is_closed() || life.run.state.has_pending());
        let stories: Vec<_> = open.map(|life| (life.run.state.id(), life.run.lines())).collect();
        hold("no unit waits for ever", false, || format!("{stories:#?}"));
    }

    /// Gives an execution all that it waits for.
    fn answer(&mut self, index: usize) {
        if self.lives[index].run.state.is_paused() {
            let _ = self.decide(index, Command::Resume { request: None });
        }
        for waiting in self.lives[index].run.state.waiting().collect::<Vec<_>>() {
            let _ = self.decide(index, dispatch(&waiting.unit));
        }
        let out: Vec<_> = self.lives[index].history.out().map(|(unit, number)| (unit.clone(), number)).collect();
        for (unit, number) in out {
            let _ = self.decide(index, complete(&unit, number, "1"));
        }
        for _ in 0..100 {
            if self.lives[index].run.state.waits_for("go").next().is_none() {
                break;
            }
            let payload = self.random.pick(&["2", "3"]);
            if self.decide(index, signal("go", payload)).is_err() {
                break;
            }
        }
        let _ = self.decide(index, wake());
    }

    /// Everything can be deleted, and is then as good as gone.
    pub(super) fn delete(&mut self) {
        for index in 0..self.lives.len() {
            self.lives[index].run.hold_replay();
            if self.lives[index].is_removed {
                continue;
            }
            if !self.lives[index].run.state.is_deleting() {
                self.decide(index, Command::BeginDeletion { request: None }).expect("what is settled can be deleted");
            }
            let events = self.lives[index].run.log.len();
            for command in [signal("go", "1"), cancel(), terminate(), dispatch("s0"), complete("s0", 1, "1"), wake()] {
                let _ = self.decide(index, command);
            }
            hold("nothing follows the deletion", self.lives[index].run.log.len() == events, String::new);
        }
    }
}
