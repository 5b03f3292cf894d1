//! Suggestions for misspelt words.

/// Returns the candidate that is closest to `word`, if it is close: at most a third of the letters differ, or one
/// begins with the other.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if 64 < word.len() {
        return None;
    }
    let begins = |a: &str, b: &str| 3 <= b.len() && a.starts_with(b);
    let distance = |candidate: &str| match begins(word, candidate) || begins(candidate, word) {
        true => 1,
        false => edit_distance(word, candidate),
    };
    let best = candidates.map(|candidate| (distance(candidate), candidate)).min()?;
    (best.0 <= 1.max(word.chars().count().max(best.1.len()) / 3)).then_some(best.1)
}

/// Returns the number of letters to insert, remove or replace to turn `a` into `b`; swapped neighbours count once.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let swapped = 1 < i && 1 < j && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                let swapped = if swapped { rows[i - 2][j - 2] + 1 } else { usize::MAX };
                replaced.min(swapped).min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1)
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_word_is_suggested() {
        let words = ["pub-window-size", "pub-window-time", "sub-window-size", "port", "ttl"];
        assert_eq!(nearest("pub-windw-size", words.into_iter()), Some("pub-window-size"));
        assert_eq!(nearest("prot", words.into_iter()), Some("port"));
        assert_eq!(nearest("tll", words.into_iter()), Some("ttl"));
        assert_eq!(nearest("ports", words.into_iter()), Some("port"));
        assert_eq!(nearest("sub-window", words.into_iter()), Some("sub-window-size"));
        assert_eq!(nearest("colour", words.into_iter()), None);
        assert_eq!(nearest(&"p".repeat(1000), words.into_iter()), None);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("abcd", "acbd"), 1);
    }
}
