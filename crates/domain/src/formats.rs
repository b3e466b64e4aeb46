//! Version numbers of formats that two releases share during a rolling deploy (docs/guide/upgrades.md).

/// Format in which this release writes steps. Every step carries its format. A worker that reads a higher format
/// than it knows hands the execution to a worker that knows it.
///
/// | format | change |
/// |---|---|
/// | 1 | first format |
/// | 2 | messages of the role `notice`, `NativeFormat::OpenAi`, paused turns |
pub const JOURNAL_FORMAT: u8 = 2;

/// Returns the requirement that a worker must satisfy to continue a journal of `format`.
/// Format 1 is read by every worker.
#[must_use]
pub fn journal_requirement(format: u8) -> String {
    format!("journal:{format}")
}

/// Returns the requirements satisfied by a worker that knows every format up to `format`.
pub fn journal_requirements(format: u8) -> impl Iterator<Item = String> {
    (2..=format).map(journal_requirement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_serves_every_older_journal_format() {
        assert_eq!(journal_requirements(1).count(), 0);
        assert_eq!(journal_requirements(3).collect::<Vec<_>>(), ["journal:2", "journal:3"]);
    }
}
