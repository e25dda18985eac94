//! Bounds the depth of an expression before anything recursive sees it: the parser's stack has no guard of its own.
//!
//! The estimate is an upper bound that needs no grammar: within one pair of brackets and between commas, a tree is
//! at most as deep as there are operators, plus its longest chain of `.field`, `[index]` and `(call)`.

/// Deepest tree.
pub(super) const DEPTH_MAX: usize = 128;

/// Most brackets open at once. One costs the parser about ten frames.
pub(super) const BRACKETS_MAX: usize = 48;

/// An expression is nested too deep at this byte of its source.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooDeep {
    pub(super) at: usize,
}

/// What has been seen since the last bracket or comma of one level.
#[derive(Clone, Copy, Default)]
struct Level {
    operators: usize,
    chain: usize,
    chain_longest: usize,
}

impl Level {
    fn depth(self) -> usize {
        self.operators + self.chain_longest
    }
}

/// Refuses sources whose tree could be deeper than [`DEPTH_MAX`].
pub(super) fn check(source: &str) -> Result<(), TooDeep> {
    let bytes = source.as_bytes();
    let mut levels = vec![Level::default()];
    // Depth of all levels below the innermost one.
    let mut below = 0_usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at).copied() {
        let start = at;
        at += 1;
        let is_nested = levels.len() > 1;
        let level = levels.last_mut().expect("the outermost level is never closed");
        match byte {
            b'"' | b'\'' => at = string_end(bytes, start),
            b'/' if bytes.get(at) == Some(&b'/') => {
                at = bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| at + end)
            }
            b'(' | b'[' | b'{' => {
                level.chain += 1;
                level.chain_longest = level.chain_longest.max(level.chain);
                below += level.depth();
                levels.push(Level::default());
                if levels.len() > BRACKETS_MAX {
                    return Err(TooDeep { at: start });
                }
            }
            b')' | b']' | b'}' if is_nested => {
                levels.pop();
                below -= levels.last().map_or(0, |level| level.depth());
            }
            b',' => *level = Level::default(),
            b'.' => {
                level.chain += 1;
                level.chain_longest = level.chain_longest.max(level.chain);
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                while bytes.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
                    at += 1;
                }
                if &source[start..at] == "in" {
                    level.operators += 1;
                    level.chain = 0;
                }
            }
            b'+' | b'-' | b'*' | b'/' | b'%' | b'!' | b'<' | b'>' | b'=' | b'&' | b'|' | b'?' | b':' => {
                // Both characters of `==` and its like are one operator.
                if matches!(byte, b'<' | b'>' | b'=' | b'!') && bytes.get(at) == Some(&b'=')
                    || matches!(byte, b'&' | b'|') && bytes.get(at) == Some(&byte)
                {
                    at += 1;
                }
                level.operators += 1;
                level.chain = 0;
            }
            _ => {}
        }
        let depth = below + levels.last().map_or(0, |level| level.depth());
        if depth > DEPTH_MAX {
            return Err(TooDeep { at: start });
        }
    }
    Ok(())
}

/// Where the string literal that starts at `start` ends, by CEL's rules; the end of the text if it has no end.
pub(super) fn string_end(bytes: &[u8], start: usize) -> usize {
    let quote = bytes[start];
    let before = start.checked_sub(1).map(|at| bytes[at].to_ascii_lowercase());
    let before_that = start.checked_sub(2).map(|at| bytes[at].to_ascii_lowercase());
    let raw = before == Some(b'r') || (before == Some(b'b') && before_that == Some(b'r'));
    let triple = bytes[start..].starts_with(&[quote, quote, quote]);
    let length = if triple { 3 } else { 1 };
    let mut at = start + length;
    while at < bytes.len() {
        if bytes[at] == b'\\' && !raw {
            at += 2;
        } else if bytes[at] == quote && (!triple || bytes[at..].starts_with(&[quote, quote, quote])) {
            return at + length;
        } else {
            at += 1;
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyday_expressions_are_shallow() {
        for source in [
            "input.items.map(i, i.cents).sum()".to_owned(),
            "a.b.c + d.e.f * (g - h[0]) > 5 && !x || y in [1, 2, 3] ? 'yes' : \"no\"".to_owned(),
            format!("[{}]", vec!["a.b.c + 1"; 300].join(", ")),
            format!("'{}'", "(".repeat(1_000)),
            format!("\"\"\"{}\"\"\"", "((\"".repeat(100)),
            format!("r'{}\\'", "(".repeat(100)),
            "1 // ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((".to_owned(),
            vec!["input.a.b.c"; 100].join(" && "),
        ] {
            assert_eq!(check(&source), Ok(()), "{source}");
        }
    }

    #[test]
    fn deep_expressions_are_refused() {
        for source in [
            "(".repeat(49),
            "[".repeat(2_000),
            "!".repeat(2_000),
            "-".repeat(2_000),
            vec!["1"; 2_000].join("+"),
            format!("a{}", ".b".repeat(2_000)),
            format!("a{}", "[0]".repeat(1_000)),
            "a?b:".repeat(1_000),
            format!("{}{}", "[1+".repeat(40), "1+".repeat(60)),
        ] {
            assert!(check(&source).is_err(), "{source}");
        }
    }
}
