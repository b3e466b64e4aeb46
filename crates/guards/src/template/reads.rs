//! The values that a template reads, found without rendering it.

use std::collections::BTreeSet;

use minijinja::{
    Error,
    machinery::{
        self,
        ast::{CallArg, Expr, Stmt},
    },
};

use super::NAME;

/// A value that a template reads by its path: `input.customer.name`, also with `["…"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The variable, then the members.
    pub path: Vec<String>,
    /// Line in the template, from 1.
    pub line: usize,
}

/// Tests and filters that take an undefined value.
const GUARDS: [&str; 4] = ["defined", "undefined", "default", "d"];

/// Returns the reads of `source` in order. Left out is what the template makes itself (`set`, `for`, `with`), and what
/// it anywhere tests with `is defined` or gives a default, with all below it.
///
/// # Errors
/// The template cannot be parsed.
pub fn reads(source: &str) -> Result<Vec<Read>, Error> {
    let parsed = machinery::parse(source, NAME, minijinja::syntax::SyntaxConfig::default())?;
    let mut walk = Walk::default();
    walk.stmt(&parsed);
    let Walk { mut reads, guarded, own } = walk;
    let is_guarded = |read: &Read| guarded.iter().any(|path| read.path.starts_with(path));
    reads.retain(|read| !read.path.first().is_some_and(|name| own.contains(name)) && !is_guarded(read));
    Ok(reads)
}

#[derive(Default)]
struct Walk {
    reads: Vec<Read>,
    guarded: Vec<Vec<String>>,
    /// Names that the template assigns.
    own: BTreeSet<String>,
}

impl Walk {
    fn body(&mut self, body: &[Stmt<'_>]) {
        body.iter().for_each(|stmt| self.stmt(stmt));
    }

    fn stmt(&mut self, stmt: &Stmt<'_>) {
        match stmt {
            Stmt::Template(t) => self.body(&t.children),
            Stmt::EmitExpr(e) => self.expr(&e.expr),
            Stmt::ForLoop(l) => {
                self.target(&l.target);
                self.own.insert("loop".to_owned());
                self.expr(&l.iter);
                l.filter_expr.iter().for_each(|expr| self.expr(expr));
                self.body(&l.body);
                self.body(&l.else_body);
            }
            Stmt::IfCond(c) => {
                self.expr(&c.expr);
                self.body(&c.true_body);
                self.body(&c.false_body);
            }
            Stmt::WithBlock(w) => {
                for (name, expr) in &w.assignments {
                    self.target(name);
                    self.expr(expr);
                }
                self.body(&w.body);
            }
            Stmt::Set(s) => {
                self.target(&s.target);
                self.expr(&s.expr);
            }
            Stmt::SetBlock(s) => {
                self.target(&s.target);
                s.filter.iter().for_each(|expr| self.expr(expr));
                self.body(&s.body);
            }
            Stmt::FilterBlock(f) => {
                self.expr(&f.filter);
                self.body(&f.body);
            }
            // The last group is refused when a template is compiled.
            Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => {}
            Stmt::AutoEscape(_)
            | Stmt::Do(_)
            | Stmt::Macro(_)
            | Stmt::CallBlock(_)
            | Stmt::Block(_)
            | Stmt::Extends(_)
            | Stmt::Import(_)
            | Stmt::FromImport(_)
            | Stmt::Include(_) => {}
        }
    }

    /// Assigned names; other targets are refused when the template is compiled.
    fn target(&mut self, expr: &Expr<'_>) {
        if let Expr::Var(variable) = expr {
            self.own.insert(variable.id.to_owned());
        } else if let Expr::List(list) = expr {
            list.items.iter().for_each(|item| self.target(item));
        } else if let Expr::Tuple(tuple) = expr {
            tuple.items.iter().for_each(|item| self.target(item));
        }
    }

    /// An operand of a test or filter; of a guard, its path is not read.
    fn operand(&mut self, by: &str, expr: &Expr<'_>) {
        match path(expr) {
            Some(path) if GUARDS.contains(&by) => self.guarded.push(path),
            Some(_) | None => self.expr(expr),
        }
    }

    fn expr(&mut self, expr: &Expr<'_>) {
        if let Some(path) = path(expr) {
            let line = expr.span().start_line;
            self.reads.push(Read { path, line: line.into() });
            return;
        }
        match expr {
            Expr::Var(_) | Expr::Const(_) => {}
            Expr::Slice(s) => {
                self.expr(&s.expr);
                [&s.start, &s.stop, &s.step].into_iter().flatten().for_each(|bound| self.expr(bound));
            }
            Expr::UnaryOp(u) => self.expr(&u.expr),
            Expr::BinOp(b) => {
                self.expr(&b.left);
                self.expr(&b.right);
            }
            Expr::IfExpr(i) => {
                self.expr(&i.test_expr);
                self.expr(&i.true_expr);
                i.false_expr.iter().for_each(|expr| self.expr(expr));
            }
            Expr::Filter(f) => {
                f.expr.iter().for_each(|expr| self.operand(f.name, expr));
                self.args(&f.args);
            }
            Expr::Test(t) => {
                self.operand(t.name, &t.expr);
                self.args(&t.args);
            }
            Expr::GetAttr(g) => self.expr(&g.expr),
            Expr::GetItem(g) => {
                self.expr(&g.expr);
                self.expr(&g.subscript_expr);
            }
            Expr::Call(c) => {
                // The name of a function is no value; an object before the name of a method is.
                if !matches!(c.expr, Expr::Var(_)) {
                    self.expr(&c.expr);
                }
                self.args(&c.args);
            }
            Expr::List(l) => l.items.iter().for_each(|item| self.expr(item)),
            Expr::Tuple(t) => t.items.iter().for_each(|item| self.expr(item)),
            Expr::Map(m) => m.keys.iter().chain(&m.values).for_each(|item| self.expr(item)),
            // Refused when the template is compiled.
            Expr::Compare(_) => {}
        }
    }

    fn args(&mut self, args: &[CallArg<'_>]) {
        for arg in args {
            let (CallArg::Pos(expr) | CallArg::Kwarg(_, expr) | CallArg::PosSplat(expr) | CallArg::KwargSplat(expr)) =
                arg;
            self.expr(expr);
        }
    }
}

/// The path of a variable or of a member below it.
fn path(expr: &Expr<'_>) -> Option<Vec<String>> {
    let below = |of: &Expr<'_>, member: &str| {
        let mut path = path(of)?;
        path.push(member.to_owned());
        Some(path)
    };
    if let Expr::Var(variable) = expr {
        return Some(vec![variable.id.to_owned()]);
    }
    if let Expr::GetAttr(member) = expr {
        return below(&member.expr, member.name);
    }
    if let Expr::GetItem(member) = expr
        && let Expr::Const(name) = &member.subscript_expr
    {
        return below(&member.expr, name.value.as_str()?);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(source: &str) -> Vec<String> {
        reads(source).unwrap().into_iter().map(|read| format!("{}:{}", read.path.join("."), read.line)).collect()
    }

    #[test]
    fn reads_have_paths_and_lines() {
        assert_eq!(paths("a\n{{ input.sku | upper }}\n{{ input['other'].x + 1 }}"), ["input.sku:2", "input.other.x:3"]);
        assert_eq!(
            paths("{% for line in input.lines %}{{ line.name }}{{ loop.index }}{% endfor %}"),
            ["input.lines:1"]
        );
        assert_eq!(paths("{% set x = input.a %}{{ x.b }}{{ range(input.n) }}"), ["input.a:1", "input.n:1"]);
        assert_eq!(
            paths("{{ inptu.sku if input.a > 1 else [input.b][0] }}"),
            ["input.a:1", "inptu.sku:1", "input.b:1"]
        );
        assert!(reads("{{ input.sku ").is_err());
    }

    #[test]
    fn guarded_reads_are_left_out() {
        assert_eq!(paths("{% if input.a is defined %}{{ input.a.b }}{% endif %}{{ input.c }}"), ["input.c:1"]);
        assert_eq!(paths("{{ input.a | default('x') }}{{ input.b | d(input.c) }}"), ["input.c:1"]);
        assert_eq!(paths("{{ '' if input.a is undefined else input.a }}"), Vec::<String>::new());
    }
}
