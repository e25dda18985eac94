//! Which versions of a child's workflow will do.

use semver::{Version, VersionReq};
use std::{fmt, sync::Arc};

/// A range of versions: `^1`, `~1.2`, `>=1.2, <1.4`, `*`, or one version, which means exactly this one.
#[derive(Clone, Debug)]
pub struct VersionRange {
    /// As it was written.
    text: Arc<str>,
    which: Which,
}

#[derive(Clone, Debug)]
enum Which {
    Exactly(Version),
    Any(VersionReq),
}

/// A text that is no range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// A version with parts left out, of which some tools say that it means exactly, others at least.
    #[error("`{0}` says neither which versions nor exactly one; write `^{0}`, `~{0}` or all three numbers")]
    Partial(String),
    /// Anything else.
    #[error("{0}")]
    Syntax(String),
}

impl VersionRange {
    /// Reads a range.
    ///
    /// # Errors
    ///
    /// [`RangeError`].
    pub fn parse(text: &str) -> Result<Self, RangeError> {
        let text = text.trim();
        let whole = |which| Self { text: Arc::from(text), which };
        if let Ok(version) = Version::parse(text) {
            return Ok(whole(Which::Exactly(version)));
        }
        for part in text.split(',').map(str::trim) {
            if part.starts_with(|c: char| c.is_ascii_digit()) && !part.contains(['*', 'x', 'X']) {
                return Err(RangeError::Partial(part.to_owned()));
            }
        }
        match VersionReq::parse(text) {
            Ok(range) => Ok(whole(Which::Any(range))),
            Err(error) => Err(RangeError::Syntax(error.to_string())),
        }
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a version will do. A pre-release will only if the range names one of the same three numbers.
    #[must_use]
    pub fn contains(&self, version: &Version) -> bool {
        match &self.which {
            Which::Exactly(one) => version == one,
            Which::Any(range) => range.matches(version),
        }
    }
}

impl PartialEq for VersionRange {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for VersionRange {}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_takes_what_semver_says_and_one_version_is_exactly_that() {
        for (range, takes, leaves) in [
            ("^1", &["1.0.0", "1.9.3"] as &[_], &["0.9.0", "2.0.0", "1.1.0-rc.1"] as &[_]),
            ("~1.2", &["1.2.0", "1.2.9"], &["1.3.0"]),
            ("1.2.3", &["1.2.3"], &["1.2.4", "1.2.3-rc.1", "1.2.3+build"]),
            ("1.2.3-rc.1", &["1.2.3-rc.1"], &["1.2.3"]),
            ("1.*", &["1.0.0", "1.5.0"], &["2.0.0"]),
            ("*", &["0.1.0", "7.0.0"], &["1.0.0-rc.1"]),
            (" >=1.2, <1.4 ", &["1.2.0", "1.3.9"], &["1.4.0", "1.1.9"]),
            (">=1.2.3-rc.1", &["1.2.3-rc.2", "1.2.3", "2.0.0"], &["1.2.4-rc.1"]),
        ] {
            let parsed = VersionRange::parse(range).unwrap();
            assert_eq!(parsed.as_str(), range.trim());
            let fits = |version: &&str| parsed.contains(&Version::parse(version).unwrap());
            assert!(takes.iter().all(fits), "{range} takes {takes:?}");
            assert!(!leaves.iter().any(fits), "{range} leaves {leaves:?}");
        }
    }

    #[test]
    fn what_could_mean_two_things_is_no_range() {
        for text in ["1", "1.2", ">=1, 2", "1.2.3, <2"] {
            assert!(matches!(VersionRange::parse(text), Err(RangeError::Partial(_))), "{text}");
        }
        for text in ["", "latest", "^", "^1.2.3.4", "v1", "1.2.3 - 2"] {
            assert!(VersionRange::parse(text).is_err(), "{text}");
        }
    }
}
