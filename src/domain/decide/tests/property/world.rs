//! A family of executions, what is on its way between them, and the time.

use super::*;

/// What happens in one case, before faults stop.
const HAPPENINGS: usize = 70;

/// Most executions of one case; what would be more is refused.
pub(super) const LIVES_MAX: usize = 24;

/// Of the executions that get signals from the steps of others.
const OTHERS: usize = 2;

/// One execution.
pub(super) struct Life {
    pub(super) run: Run,
    pub(super) history: History,
    deadlines: Deadlines,
    /// When its deletion began.
    pub(super) deletion: Option<f64>,
    /// Whether nothing of it is left.
    pub(super) is_removed: bool,
}

impl Life {
    pub(super) fn is(&self, id: &ExecutionId) -> bool {
        self.run.state.id() == id && !self.is_removed
    }
}

/// An effect on its way.
#[derive(Clone)]
pub(super) struct Flight {
    pub(super) from: usize,
    pub(super) effect: Effect,
    pub(super) since: f64,
}

/// Everything that there is.
pub(super) struct World {
    pub(super) random: Random,
    pub(super) now: f64,
    pub(super) lives: Vec<Life>,
    pub(super) flights: Vec<Flight>,
    pub(super) has_faults: bool,
    /// Definitions of children, by how many parents stand above them.
    pub(super) children: Vec<Arc<Definition>>,
    /// Children that there was no room for.
    pub(super) unmade: BTreeSet<ExecutionId>,
    /// What names the sender of each signal, by execution and event.
    pub(super) senders: BTreeMap<(usize, u64), [u8; 16]>,
    pub(super) met: Met,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let steps_max = random.pick(&[4, 7, 7, 12, 30]);
        let roots = sample::Shape { steps_max, ..sample::Shape::default() };
        let middle = sample::Shape { steps_max: 4, ..roots };
        let leaf = sample::Shape { steps_max: 3, children: false, ..roots };
        let root = sampled(&mut random, roots);
        let children = vec![root.clone(), sampled(&mut random, middle), sampled(&mut random, leaf)];
        let mut world = Self {
            random,
            now: 0.0,
            lives: Vec::new(),
            flights: Vec::new(),
            has_faults: true,
            children,
            unmade: BTreeSet::new(),
            senders: BTreeMap::new(),
            met: Met::new(),
        };
        let start = world.root_start("e");
        world.start(root, start).expect("nothing is asked of the input");
        for other in 0..OTHERS {
            let definition = sampled(&mut world.random, leaf);
            let start = world.root_start(&format!("other-{other}"));
            world.start(definition, start).expect("nothing is asked of the input");
        }
        world
    }

    fn root_start(&mut self, id: &str) -> Start {
        let random = &mut self.random;
        let items = random.pick(&["[]", "[1]", "[1,2,3]", "[5,0,2,7]"]);
        let input = format!(r#"{{"n":{},"items":{items},"url":"http://a.example.com"}}"#, 1 + random.below(3));
        let signal = StartSignal { name: arc(random.pick(&sample::SIGNALS)), payload: json("2") };
        let delay = random.pick(&[0, 0, 0, 5]);
        Start {
            id: ExecutionId::parse(id).unwrap(),
            delay: (delay > 0).then(|| span(5.0)),
            signal: random.one_in(4).then_some(signal),
            request: random.one_in(3).then(|| request(9, 1)),
            ..a_start(&input)
        }
    }

    /// Begins an execution, under a uid of its own.
    pub(super) fn start(&mut self, definition: Arc<Definition>, start: Start) -> Result<usize, Rejection> {
        let index = self.lives.len();
        let uid = Uid(Uuid::from_u128(u128::try_from(index + 1).unwrap()));
        let deliveries_max = self.random.pick(&[1, 3, 3]);
        let settings = Settings { deliveries_max, buffered_signals_max: 5, ..Settings::default() };
        let run = Run::try_start(definition, Start { uid, ..start }, self.now, settings)?;
        let (history, deadlines) = (History::default(), Deadlines::default());
        self.lives.push(Life { run, history, deadlines, deletion: None, is_removed: false });
        self.read(index);
        Ok(index)
    }

    /// Decides a command on an execution that is there.
    pub(super) fn decide(&mut self, index: usize, command: Command) -> Result<Outcome, Rejection> {
        *self.met.entry(kind_of(&command)).or_default() += 1;
        // Now and then the clock of the one who decides is behind.
        let now = if self.has_faults && self.random.one_in(10) { self.now - 2.0 } else { self.now };
        let result = self.lives[index].run.decide_at(now, command);
        self.read(index);
        result
    }

    /// Holds what is new in a history to the rules, and takes what it asks of others.
    fn read(&mut self, index: usize) {
        let Life { run, history, deadlines, .. } = &mut self.lives[index];
        history.read(run);
        deadlines.read(run);
        hold_explanation(run);
        for effect in std::mem::take(&mut run.fresh) {
            let copies = if self.has_faults { self.random.pick(&[0, 1, 1, 1, 2]) } else { 1 };
            let flight = Flight { from: index, effect, since: self.now };
            self.flights.extend(std::iter::repeat_n(flight, copies));
        }
    }

    /// An execution that is current under an id, or the newest of it.
    pub(super) fn find(&self, id: &ExecutionId) -> Option<usize> {
        self.lives.iter().rposition(|life| life.is(id))
    }

    pub(super) fn find_uid(&self, uid: Uid) -> Option<usize> {
        self.lives.iter().rposition(|life| life.run.state.uid() == uid && !life.is_removed)
    }

    /// Lives through a random time.
    pub(super) fn live(&mut self) {
        for _ in 0..HAPPENINGS {
            self.now += self.random.pick(&[0.0, 0.0, 0.5, 1.0, 3.0, 9.0]);
            self.remove_deleted();
            match self.random.below(12) {
                0..=2 if !self.flights.is_empty() => {
                    let flight = self.random.below(self.flights.len());
                    self.land(flight);
                }
                3 if self.random.one_in(2) => {
                    let life = self.any_life();
                    self.lives[life].run.crash();
                    *self.met.entry("Crash".into()).or_default() += 1;
                }
                4 if self.random.one_in(12) => self.rerun(),
                5 => self.query(),
                _ => self.command(),
            }
        }
    }

    /// The root for most.
    pub(super) fn any_life(&mut self) -> usize {
        let there: Vec<usize> = (0..self.lives.len()).filter(|life| !self.lives[*life].is_removed).collect();
        if self.random.one_in(2) { there[0] } else { self.random.pick(&there) }
    }

    /// What was deleted is gone a while later.
    fn remove_deleted(&mut self) {
        for life in &mut self.lives[1..] {
            life.is_removed |= life.deletion.is_some_and(|time| time + 100.0 <= self.now);
        }
    }

    /// What the case met.
    pub(super) fn met(&self) -> Met {
        let mut met = self.met.clone();
        for event in self.lives.iter().flat_map(|life| &life.run.log) {
            *met.entry(kind_of(&event.kind)).or_default() += 1;
        }
        met
    }
}

/// Tells what happened in the case that fails, if it runs alone.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() && number("SEED").is_some() {
            for Life { run, .. } in &self.lives {
                let settings = run.settings;
                eprintln!("{} {settings:?}\n{}\n{:#?}", run.state.id(), run.definition.to_json(), run.lines());
            }
        }
    }
}

/// Whatever it waits for, it says since when.
fn hold_explanation(run: &Run) {
    let lived = run.state.start_time()..=run.state.last_time();
    for wait in run.state.explain(run.state.last_time()).waits {
        let is_told = wait.since.is_some_and(|since| lived.contains(&since));
        hold("a wait says since when", is_told, || format!("{wait:?}"));
    }
}

fn sampled(random: &mut Random, shape: sample::Shape) -> Arc<Definition> {
    definition(&sample::lines(&mut |bound| random.below(bound), shape))
}
