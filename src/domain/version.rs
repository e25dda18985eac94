//! Versions of definitions, as bytes that sort by semver's rules.

use semver::Version;

/// Bytes whose order is the precedence of semver 2.0.0; build metadata, which has no precedence, breaks ties.
#[must_use]
pub fn order(version: &Version) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(32);
    for number in [version.major, version.minor, version.patch] {
        bytes.extend(number.to_be_bytes());
    }
    if version.pre.is_empty() {
        // A release goes after all of its pre-releases.
        bytes.push(0xFF);
    } else {
        for identifier in version.pre.as_str().split('.') {
            if identifier.bytes().all(|byte| byte.is_ascii_digit()) {
                // Numbers go before words, the longer number after the shorter; semver forbids leading zeros.
                bytes.push(1);
                bytes.extend(u32::try_from(identifier.len()).unwrap_or(u32::MAX).to_be_bytes());
            } else {
                bytes.push(2);
            }
            bytes.extend(identifier.bytes());
            bytes.push(0);
        }
    }
    bytes.push(0);
    bytes.extend(version.build.as_str().bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_sort_as_semver_does() {
        let ordered = [
            "0.9.9",
            "1.0.0-0",
            "1.0.0-2",
            "1.0.0-10",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.0.1",
            "1.2.0",
            "1.10.0",
            "2.0.0",
            "10.0.0",
        ];
        let versions = ordered.map(|text| Version::parse(text).unwrap());
        for pair in versions.windows(2) {
            assert!(order(&pair[0]) < order(&pair[1]), "{} before {}", pair[0], pair[1]);
        }
    }
}
