//! Tables and diagrams of docs/ that must say what the code says.

use std::collections::BTreeSet;

use longhaul_sdk::failure::{FailureClass, FailureCode};
use longhaul_shared::domain::ExecutionStatus;
use longhaul_shared::domain::status::Transition;

#[test]
fn every_built_in_failure_code_is_a_row_and_every_row_a_code() {
    let guide = include_str!("../../docs/failures.md");
    let table = guide.split("| code |").nth(1).unwrap();
    let mut rows = Vec::new();
    for line in table.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        assert_eq!(cells.len(), 7, "{line}");
        assert!(FailureClass::parse(cells[2]).is_some(), "{line}");
        rows.push(cells[1]);
    }
    assert_eq!(rows, FailureCode::BUILT_IN.iter().map(FailureCode::as_str).collect::<Vec<_>>());
}

#[test]
fn the_diagram_has_the_edges_of_the_state_machine() {
    let mut expected = BTreeSet::new();
    for &from in ExecutionStatus::ALL {
        for transition in Transition::ALL {
            if let Ok(to) = from.next(transition) {
                expected.insert(format!("{from} --> {to}: {transition:?}"));
            }
        }
    }
    let guide = include_str!("../../docs/state-machine.md");
    let edges = guide.lines().map(str::trim).filter(|line| line.contains(" --> ") && !line.contains("[*]"));
    assert_eq!(edges.map(str::to_owned).collect::<BTreeSet<_>>(), expected);
}
