//! The table of recoveries: how soon everything goes on, and what who called meanwhile was told.

use super::{MEANWHILE, RECOVERY_MAX, asking::Asked, fault::Fault};
use std::{fmt, time::Duration};

/// One line for each fault and those who go on.
#[derive(Default)]
pub(super) struct Table(Vec<Row>);

#[derive(Debug)]
pub(super) struct Row {
    fault: Fault,
    /// Who goes on, and from when on that is measured.
    what: &'static str,
    spans: Vec<Duration>,
    asked: Asked,
}

impl Table {
    /// Adds what one try came to.
    pub(super) fn add(&mut self, fault: Fault, what: &'static str, span: Duration, asked: Asked) {
        eprintln!("{}: {what}: {} ms", fault.name(), span.as_millis());
        let known = self.0.iter().position(|row| (row.fault, row.what) == (fault, what));
        let row = known.unwrap_or_else(|| {
            self.0.push(Row { fault, what, spans: Vec::new(), asked: Asked::default() });
            self.0.len() - 1
        });
        self.0[row].spans.push(span);
        self.0[row].asked.add(asked);
    }

    /// The recoveries that took too long.
    pub(super) fn slow(&self) -> Vec<&Row> {
        self.0.iter().filter(|row| row.is_recovery() && row.at(99) > RECOVERY_MAX).collect()
    }
}

impl Row {
    /// Whether nothing is wrong any more, or not with those that go on. While every way to the database is slow, everything
    /// is, and nothing has recovered.
    fn is_recovery(&self) -> bool {
        (self.fault, self.what) != (Fault::DatabaseSlow, MEANWHILE)
    }

    fn at(&self, percent: usize) -> Duration {
        let mut spans = self.spans.clone();
        spans.sort();
        spans[(spans.len() * percent).div_ceil(100).max(1) - 1]
    }
}

impl fmt::Display for Table {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            text,
            "{:<34}  {:<26}  {:>5}  {:>8}  {:>8}  {:>8}  {:>11}  {:>12}",
            "fault", "who goes on", "tries", "p50", "p99", "max", "UNAVAILABLE", "longest call"
        )?;
        for row in &self.0 {
            let [middle, late, latest] = [50, 99, 100].map(|percent| format!("{} ms", row.at(percent).as_millis()));
            let (fault, what, tries) = (row.fault.name(), row.what, row.spans.len());
            let (told, longest) = (row.asked.told, format!("{} ms", row.asked.longest.as_millis()));
            writeln!(
                text,
                "{fault:<34}  {what:<26}  {tries:>5}  {middle:>8}  {late:>8}  {latest:>8}  {told:>11}  {longest:>12}"
            )?;
        }
        Ok(())
    }
}
