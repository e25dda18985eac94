//! What a schedule is going to do, told before: its next slots, and what keeps others from being any.

use super::{
    Schedule,
    civil::Civil,
    spec::{Candidate, Verdict, seconds},
};
use crate::domain::Timestamp;

/// Most slots of a preview. As many more times may stand between them that are left out.
pub const PREVIEW_MAX: usize = 1_000;

/// Most times that a preview looks at.
const WORK_MAX: usize = 20_000;

/// Most searches for the next time of a cron, interval or calendar that a preview makes: where many name the same times, each is
/// searched for as often.
const SEARCHES_MAX: usize = 200_000;

/// What comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// The slots, and times between them that are none, oldest first.
    pub times: Vec<Preview>,
    /// How many more times between the slots are left out than [`times`](Self::times) tells.
    pub unlisted: usize,
    /// Where the look stopped before it had as many slots as were asked for; nobody knows what comes after.
    pub stopped: Option<Timestamp>,
}

/// A slot to come, or a time that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// When it is planned.
    pub nominal: Timestamp,
    /// When it starts at the earliest: with its jitter.
    pub due: Timestamp,
    /// What clocks in the schedule's zone show at its nominal time, as RFC 3339 with the offset.
    pub local: String,
    /// Why it does not fire; none: it does.
    pub left_out: Option<LeftOut>,
}

/// Why a time does not fire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// It is excluded by this field, such as `exclusions.dates[0]`.
    Excluded(String),
    /// The clocks are put forward over this local time, written without an offset since it has none, and the schedule
    /// skips such times. It stands for all in the same gap.
    Missing(String),
    /// The clocks show this time twice, and the other one fires.
    Repeated,
}

impl Schedule {
    /// The next slots strictly after an instant, at most `slots_max` of them and [`PREVIEW_MAX`], oldest first, with the
    /// times between that are left out. What is cut says so.
    #[must_use]
    pub fn preview(&self, after: Timestamp, slots_max: usize) -> Outlook {
        let mut left = slots_max.min(PREVIEW_MAX);
        let mut left_out_left = PREVIEW_MAX;
        let mut work = WORK_MAX;
        let mut candidates = self.spec.candidates();
        let mut outlook = Outlook::default();
        let mut after = self.spec.floor(after);
        let end = self.spec.draft().end_time;
        while left > 0
            && let Some(Candidate { at, verdict }) = candidates.after(after)
            && end.is_none_or(|end| seconds(at) <= end)
        {
            if work == 0 || candidates.searches > SEARCHES_MAX {
                outlook.stopped = Some(seconds(after));
                break;
            }
            after = at;
            work -= 1;
            let left_out = self.left_out(at, verdict);
            if left_out.is_none() {
                left -= 1;
            } else if left_out_left == 0 {
                outlook.unlisted += 1;
                continue;
            } else {
                left_out_left -= 1;
            }
            let nominal = seconds(at);
            // What does not fire has no jitter either.
            let due = if left_out.is_none() { self.due(nominal) } else { nominal };
            outlook.times.push(Preview { nominal, due, local: self.spec.local(nominal), left_out });
        }
        outlook
    }

    fn left_out(&self, at: i64, verdict: Verdict) -> Option<LeftOut> {
        match verdict {
            Verdict::Missing(local) => Some(LeftOut::Missing(local.to_string())),
            Verdict::Repeated => Some(LeftOut::Repeated),
            Verdict::Fires => {
                let local: Civil = self.spec.local_time(at);
                self.spec.excluding(local).map(|exclusion| LeftOut::Excluded(exclusion.path.clone()))
            }
        }
    }
}
