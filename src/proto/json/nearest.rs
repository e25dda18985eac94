//! Finds the word that was probably meant.

/// Longest text that is looked at: the distance takes quadratic time, and nobody mistypes a longer name.
const LENGTH_MAX: usize = 64;

/// The candidate nearest to `word`, if it is near enough to be what was meant: a third of the word may differ,
/// in letters left out, added, changed or swapped. Case and `_` do not count.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > LENGTH_MAX {
        return None;
    }
    let folded = fold(word);
    let within = (folded.len() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(&folded, &fold(candidate)), candidate))
        .filter(|(distance, _)| *distance <= within)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn fold(word: &str) -> Vec<char> {
    word.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect()
}

/// Edits from one word to the other, a swap of neighbours counting as one (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = change.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn finds_what_was_mistyped_and_nothing_far_away() {
        let names = ["maxAttempts", "jitter", "initialInterval", "id"];
        assert_eq!(nearest("jiter", names), Some("jitter"));
        assert_eq!(nearest("jittre", names), Some("jitter"));
        assert_eq!(nearest("max_attempt", names), Some("maxAttempts"));
        assert_eq!(nearest("ID", names), Some("id"));
        assert_eq!(nearest("timeout", names), None);
        assert_eq!(nearest(&"j".repeat(100_000), names), None);
    }
}
