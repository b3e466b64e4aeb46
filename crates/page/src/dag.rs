//! The drawing of a project's plan: tasks in columns, each right of those that it depends on.

use std::collections::BTreeMap;

use minijinja::{Value, context};

use crate::value::{items, member};

/// Size of a task's box and the room around it, in the drawing's units.
const BOX: (f64, f64) = (190.0, 46.0);
const GAP: (f64, f64) = (60.0, 14.0);

/// `dag(tasks)`: `nodes` (each with its `task`, `x` and `y`), `edges` (paths) and the drawing's `width` and `height`.
pub(crate) fn layout(tasks: &Value) -> Value {
    let tasks = items(tasks);
    let key = |task: &Value| member(task, "key").to_string();
    let at: BTreeMap<String, usize> = tasks.iter().enumerate().map(|(i, task)| (key(task), i)).collect();
    let before: Vec<Vec<usize>> = tasks
        .iter()
        .map(|task| {
            let names = items(&member(task, "depends_on"));
            names.iter().filter_map(|name| at.get(&name.to_string()).copied()).collect()
        })
        .collect();
    let columns = columns(&before);
    let mut filled: BTreeMap<usize, usize> = BTreeMap::new();
    let places: Vec<(f64, f64)> = columns
        .iter()
        .map(|&column| {
            let row = filled.entry(column).or_default();
            let place = (column as f64 * (BOX.0 + GAP.0), *row as f64 * (BOX.1 + GAP.1));
            *row += 1;
            place
        })
        .collect();
    let edges = before.iter().enumerate().flat_map(|(to, from)| from.iter().map(move |&from| (from, to)));
    let edges: Vec<String> = edges.map(|(from, to)| edge(places[from], places[to])).collect();
    let (wide, high) = (filled.len(), filled.values().copied().max().unwrap_or_default());
    let nodes: Vec<Value> =
        tasks.into_iter().zip(&places).map(|(task, (x, y))| context! { task, x => x, y => y }).collect();
    context! {
        nodes, edges, box_width => BOX.0, box_height => BOX.1,
        width => (wide as f64 * (BOX.0 + GAP.0) - GAP.0).max(0.0), height => (high as f64 * (BOX.1 + GAP.1)).max(0.0),
    }
}

/// The column of each task: one more than the last column of those that it depends on. A plan has no circles; if it
/// had, the number of rounds would still be bounded.
fn columns(before: &[Vec<usize>]) -> Vec<usize> {
    let mut columns = vec![0; before.len()];
    for _ in 0..before.len() {
        let mut has_moved = false;
        for (task, from) in before.iter().enumerate() {
            let least = from.iter().map(|&from| columns[from] + 1).max().unwrap_or(0);
            if columns[task] < least {
                columns[task] = least;
                has_moved = true;
            }
        }
        if !has_moved {
            break;
        }
    }
    columns
}

/// A curve from the right side of one box to the left side of another.
fn edge(from: (f64, f64), to: (f64, f64)) -> String {
    let (x1, y1, x2, y2) = (from.0 + BOX.0, from.1 + BOX.1 / 2.0, to.0, to.1 + BOX.1 / 2.0);
    let bend = (x2 - x1) / 2.0;
    format!("M{x1} {y1}C{} {y1} {} {y2} {x2} {y2}", x1 + bend, x2 - bend)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_stand_right_of_their_dependencies() {
        assert_eq!(columns(&[vec![], vec![0], vec![0, 1], vec![]]), [0, 1, 2, 0]);
        assert_eq!(columns(&[vec![1], vec![0]]).len(), 2, "a circle ends");
    }

    #[test]
    fn drawing_has_every_task_and_edge() {
        let tasks = Value::from(vec![
            context! { key => "a", depends_on => Vec::<String>::new() },
            context! { key => "b", depends_on => vec!["a", "gone"] },
        ]);
        let drawing = layout(&tasks);
        assert_eq!(member(&drawing, "nodes").len(), Some(2));
        assert_eq!(member(&drawing, "edges").len(), Some(1));
        assert_eq!(member(&drawing, "width").to_string(), "440.0");
    }
}
