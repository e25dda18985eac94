//! Pages of lists: how many entries, and the opaque token of the next one.
//!
//! A token holds where the page begins and a digest of the list's other arguments, so that it cannot be used with a
//! changed filter. It is no secret: whoever changes it can only begin elsewhere in a list that he may read anyway.

use super::Violations;
use crate::domain::digest16;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

/// Entries of a page where the caller names no number.
pub const SIZE_DEFAULT: usize = 50;

/// Most entries of a page.
pub const SIZE_MAX: usize = 1_000;

/// Most characters of a token.
const TOKEN_LENGTH_MAX: usize = 2_048;

/// Judges `page_size`: 0 is the default, more than the most is the most, negative is refused.
#[must_use]
pub fn size(violations: &mut Violations, size: i32) -> usize {
    match usize::try_from(size) {
        Ok(0) => SIZE_DEFAULT,
        Ok(size) => size.min(SIZE_MAX),
        Err(_) => {
            violations.add("page_size", "is negative; 0 gives 50 entries, at most 1,000 are given");
            SIZE_DEFAULT
        }
    }
}

/// Which list a token belongs to: the rpc and all arguments but page size and token.
#[derive(Clone, Copy, Debug)]
pub struct List<'a> {
    /// Name of the rpc.
    pub rpc: &'a str,
    /// Arguments that must be the same on each page.
    pub arguments: &'a [&'a str],
}

impl List<'_> {
    fn digest(&self, cursor: &[u8]) -> [u8; 16] {
        let mut parts: Vec<&[u8]> = vec![b"page", self.rpc.as_bytes(), cursor];
        parts.extend(self.arguments.iter().map(|argument| argument.as_bytes()));
        digest16(&parts)
    }

    /// The token of the page that begins after `cursor`.
    #[must_use]
    pub fn token(&self, cursor: &[u8]) -> String {
        let mut bytes = self.digest(cursor).to_vec();
        bytes.extend(cursor);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Where a page begins; none for the first page, and where the token is refused.
    pub fn cursor<T>(
        &self,
        violations: &mut Violations,
        token: &str,
        read: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Option<T> {
        if token.is_empty() {
            return None;
        }
        let cursor = self.decode(token).and_then(|cursor| read(&cursor));
        if cursor.is_none() {
            violations.add_page_token();
        }
        cursor
    }

    fn decode(&self, token: &str) -> Option<Vec<u8>> {
        if token.len() > TOKEN_LENGTH_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (digest, cursor) = bytes.split_first_chunk::<16>()?;
        (*digest == self.digest(cursor)).then(|| cursor.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(list: List<'_>, token: &str) -> Result<Option<Vec<u8>>, ()> {
        let mut violations = Violations::new();
        let cursor = list.cursor(&mut violations, token, |bytes| Some(bytes.to_vec()));
        violations.finish(Some(cursor)).map_err(|invalid| assert!(invalid.page_token))
    }

    #[test]
    fn a_token_is_good_for_its_own_list_only() {
        let list = List { rpc: "ListExecutions", arguments: &["state = RUNNING"] };
        let token = list.token(b"here");
        assert_eq!(read(list, &token), Ok(Some(b"here".to_vec())));
        assert_eq!(read(list, ""), Ok(None));
        assert_eq!(read(List { arguments: &["state = FAILED"], ..list }, &token), Err(()));
        assert_eq!(read(List { rpc: "ListEvents", ..list }, &token), Err(()));
        for damaged in ["x", "AAAA", &token[1..], &format!("{token}A"), &"A".repeat(5_000)] {
            assert_eq!(read(list, damaged), Err(()), "{damaged}");
        }
    }

    #[test]
    fn page_sizes_are_defaulted_clamped_or_refused() {
        let mut violations = Violations::new();
        assert_eq!([0, 1, 1_000, 99_999].map(|n| size(&mut violations, n)), [50, 1, 1_000, 1_000]);
        assert_eq!(size(&mut violations, -1), 50);
        assert_eq!(violations.finish(None::<()>).unwrap_err().violations[0].field, "page_size");
    }
}
