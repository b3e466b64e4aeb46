//! Rewrites a parsed template: every operation that can allocate becomes a call of a metered function, and
//! constructs whose cost cannot be bounded are refused.
//!
//! The names of these functions cannot be written in a template. Compilation cannot allocate without bound either:
//! only the remaining operators fold constants.

use std::collections::HashSet;

use minijinja::{
    Error, ErrorKind, Value,
    machinery::{
        Span, Token,
        ast::{
            BinOp, BinOpKind, Break, Call, CallArg, Const, Continue, EmitExpr, Expr, Filter, FilterBlock, ForLoop,
            GetAttr, GetItem, IfCond, IfExpr, List, Set, SetBlock, Spanned, Stmt, Template, Test, UnaryOp, UnaryOpKind,
            Var, WithBlock,
        },
        tokenize,
    },
};

/// Maximum operators, calls and accesses in one expression. The parser nests each, and the tree is walked
/// recursively.
const MAX_CHAIN: usize = 300;
/// Maximum `elif` branches in a template; they nest.
const MAX_ELIFS: usize = 100;
/// Maximum items of a list or map literal.
const MAX_ITEMS: usize = 10_000;

/// # Errors
/// Fails if an expression is too long for a recursive walk.
pub(super) fn refuse_long_chains(source: &str) -> Result<(), Error> {
    let (mut chain, mut elifs) = (0, 0);
    for token in tokenize(source, false, minijinja::syntax::SyntaxConfig::default()) {
        let (token, _) = token?;
        match token {
            Token::VariableStart | Token::BlockStart => chain = 0,
            Token::Ident("elif") => elifs += 1,
            Token::Ident("and" | "or" | "not" | "is" | "in" | "if" | "else")
            | Token::Plus
            | Token::Minus
            | Token::Mul
            | Token::Div
            | Token::FloorDiv
            | Token::Pow
            | Token::Mod
            | Token::Dot
            | Token::Tilde
            | Token::Pipe
            | Token::Eq
            | Token::Ne
            | Token::Gt
            | Token::Gte
            | Token::Lt
            | Token::Lte
            | Token::BracketOpen
            | Token::ParenOpen
            | Token::BraceOpen => chain += 1,
            Token::TemplateData(_)
            | Token::VariableEnd
            | Token::BlockEnd
            | Token::Ident(_)
            | Token::Str(_)
            | Token::String(_)
            | Token::Int(_)
            | Token::Int128(_)
            | Token::Float(_)
            | Token::Comma
            | Token::Colon
            | Token::Assign
            | Token::BracketClose
            | Token::ParenClose
            | Token::BraceClose => {}
        }
        if chain > MAX_CHAIN || elifs > MAX_ELIFS {
            return Err(refused(&format!("more than {MAX_CHAIN} operators in one expression, or {MAX_ELIFS} `elif`,")));
        }
    }
    Ok(())
}

fn refused(what: &str) -> Error {
    Error::new(ErrorKind::SyntaxError, format!("{what} cannot be used in this template"))
}

pub(super) struct Rewrite<'f> {
    filters: &'f HashSet<&'static str>,
    names: HashSet<String>,
}

impl<'f> Rewrite<'f> {
    pub(super) fn new(filters: &'f HashSet<&'static str>) -> Self {
        Self { filters, names: HashSet::new() }
    }

    pub(super) fn names(self) -> HashSet<String> {
        self.names
    }

    fn body<'a>(&mut self, body: &[Stmt<'a>]) -> Result<Vec<Stmt<'a>>, Error> {
        body.iter().map(|stmt| self.stmt(stmt)).collect()
    }

    pub(super) fn stmt<'a>(&mut self, stmt: &Stmt<'a>) -> Result<Stmt<'a>, Error> {
        Ok(match stmt {
            Stmt::Template(t) => Stmt::Template(Spanned::new(Template { children: self.body(&t.children)? }, t.span())),
            Stmt::EmitExpr(e) => emit(self.expr(&e.expr)?, e.span()),
            // Raw text also goes through the formatter, which meters it.
            Stmt::EmitRaw(e) => emit(constant(Value::from(e.raw), e.span()), e.span()),
            Stmt::ForLoop(l) if l.recursive => return Err(refused("`recursive`")),
            Stmt::ForLoop(l) => {
                let iter = call("~each", vec![self.expr(&l.iter)?], l.iter.span());
                let filter_expr = l.filter_expr.as_ref().map(|expr| self.expr(expr)).transpose()?;
                let (body, else_body) = (self.body(&l.body)?, self.body(&l.else_body)?);
                let target = target(&l.target)?;
                let inner = ForLoop { target, iter, filter_expr, recursive: false, body, else_body };
                Stmt::ForLoop(Spanned::new(inner, l.span()))
            }
            Stmt::IfCond(c) => {
                let (expr, true_body) = (self.expr(&c.expr)?, self.body(&c.true_body)?);
                let inner = IfCond { expr, true_body, false_body: self.body(&c.false_body)? };
                Stmt::IfCond(Spanned::new(inner, c.span()))
            }
            Stmt::WithBlock(w) => {
                let pairs = w.assignments.iter();
                let assignments: Result<_, Error> =
                    pairs.map(|(name, expr)| Ok((target(name)?, self.expr(expr)?))).collect();
                Stmt::WithBlock(Spanned::new(
                    WithBlock { assignments: assignments?, body: self.body(&w.body)? },
                    w.span(),
                ))
            }
            Stmt::Set(s) => {
                let mut expr = self.expr(&s.expr)?;
                if !matches!(s.target, Expr::Var(_)) {
                    expr = call("~held", vec![expr], s.span());
                }
                Stmt::Set(Spanned::new(Set { target: target(&s.target)?, expr }, s.span()))
            }
            Stmt::SetBlock(s) => {
                let filter = s.filter.as_ref().map(|filter| self.expr(filter)).transpose()?;
                let inner = SetBlock { target: target(&s.target)?, filter, body: self.body(&s.body)? };
                Stmt::SetBlock(Spanned::new(inner, s.span()))
            }
            Stmt::FilterBlock(f) => {
                let inner = FilterBlock { filter: self.expr(&f.filter)?, body: self.body(&f.body)? };
                Stmt::FilterBlock(Spanned::new(inner, f.span()))
            }
            Stmt::Continue(c) => Stmt::Continue(Spanned::new(Continue, c.span())),
            Stmt::Break(b) => Stmt::Break(Spanned::new(Break, b.span())),
            Stmt::AutoEscape(_) => return Err(refused("`{% autoescape %}`")),
            Stmt::Do(_) => return Err(refused("`{% do %}`")),
            Stmt::Macro(_) | Stmt::CallBlock(_) => return Err(refused("`{% macro %}`")),
            Stmt::Block(_) | Stmt::Extends(_) => return Err(refused("`{% block %}`")),
            Stmt::Import(_) | Stmt::FromImport(_) | Stmt::Include(_) => return Err(refused("`{% include %}`")),
        })
    }

    fn exprs<'a>(&mut self, exprs: &[Expr<'a>]) -> Result<Vec<Expr<'a>>, Error> {
        if exprs.len() > MAX_ITEMS {
            return Err(refused(&format!("a list of more than {MAX_ITEMS} items")));
        }
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    fn expr<'a>(&mut self, expr: &Expr<'a>) -> Result<Expr<'a>, Error> {
        let span = expr.span();
        Ok(match expr {
            Expr::Var(v) => {
                self.names.insert(v.id.to_owned());
                Expr::Var(Spanned::new(Var { id: v.id }, span))
            }
            Expr::Const(c) => constant(c.value.clone(), span),
            Expr::Slice(s) => {
                let mut args = vec![self.expr(&s.expr)?];
                for bound in [&s.start, &s.stop, &s.step] {
                    args.push(bound.as_ref().map_or_else(|| Ok(constant(Value::from(()), span)), |e| self.expr(e))?);
                }
                call("~slice", args, span)
            }
            Expr::UnaryOp(u) => {
                let expr = self.expr(&u.expr)?;
                let is_not = matches!(u.op, UnaryOpKind::Not);
                let (op, expr) = if is_not { (UnaryOpKind::Not, expr) } else { (UnaryOpKind::Neg, number(expr)) };
                Expr::UnaryOp(Spanned::new(UnaryOp { op, expr }, span))
            }
            Expr::BinOp(b) => binary(b.op, self.expr(&b.left)?, self.expr(&b.right)?, span),
            Expr::Compare(_) => return Err(refused("a chain of comparisons")),
            Expr::IfExpr(i) => {
                let false_expr = i.false_expr.as_ref().map(|expr| self.expr(expr)).transpose()?;
                let (test_expr, true_expr) = (self.expr(&i.test_expr)?, self.expr(&i.true_expr)?);
                Expr::IfExpr(Spanned::new(IfExpr { test_expr, true_expr, false_expr }, span))
            }
            Expr::Filter(f) => {
                if !self.filters.contains(f.name) {
                    return Err(refused(&format!("the filter `{}`", f.name)));
                }
                let expr = f.expr.as_ref().map(|expr| self.expr(expr)).transpose()?;
                Expr::Filter(Spanned::new(Filter { name: f.name, expr, args: self.args(&f.args)? }, span))
            }
            Expr::Test(t) => {
                let inner = Test { name: t.name, expr: self.expr(&t.expr)?, args: self.args(&t.args)? };
                Expr::Test(Spanned::new(inner, span))
            }
            Expr::GetAttr(g) => Expr::GetAttr(Spanned::new(GetAttr { expr: self.expr(&g.expr)?, name: g.name }, span)),
            Expr::GetItem(g) => {
                let inner = GetItem { expr: self.expr(&g.expr)?, subscript_expr: self.expr(&g.subscript_expr)? };
                Expr::GetItem(Spanned::new(inner, span))
            }
            Expr::Call(c) => {
                Expr::Call(Spanned::new(Call { expr: self.expr(&c.expr)?, args: self.args(&c.args)? }, span))
            }
            Expr::List(l) => call("~list", self.exprs(&l.items)?, span),
            Expr::Tuple(t) => call("~list", self.exprs(&t.items)?, span),
            Expr::Map(m) => {
                let (keys, values) = (self.exprs(&m.keys)?, self.exprs(&m.values)?);
                call("~map", keys.into_iter().zip(values).flat_map(|(key, value)| [key, value]).collect(), span)
            }
        })
    }

    fn args<'a>(&mut self, args: &[CallArg<'a>]) -> Result<Vec<CallArg<'a>>, Error> {
        let arg = |arg: &CallArg<'a>| match arg {
            CallArg::Pos(expr) => Ok(CallArg::Pos(self.expr(expr)?)),
            CallArg::Kwarg(name, expr) => Ok(CallArg::Kwarg(name, self.expr(expr)?)),
            CallArg::PosSplat(_) | CallArg::KwargSplat(_) => Err(refused("`*` before an argument")),
        };
        args.iter().map(arg).collect()
    }
}

fn binary<'a>(op: BinOpKind, left: Expr<'a>, right: Expr<'a>, span: Span) -> Expr<'a> {
    if let Some(function) = metered(op) {
        return call(function, vec![left, right], span);
    }
    let is_logic = matches!(op, BinOpKind::ScAnd | BinOpKind::ScOr);
    let (left, right) = if is_logic { (left, right) } else { (number(left), number(right)) };
    Expr::BinOp(Spanned::new(BinOp { op, left, right }, span))
}

/// Name of the metered function that replaces an operator.
fn metered(op: BinOpKind) -> Option<&'static str> {
    match op {
        BinOpKind::Eq => Some("~eq"),
        BinOpKind::Ne => Some("~ne"),
        BinOpKind::Lt => Some("~lt"),
        BinOpKind::Lte => Some("~le"),
        BinOpKind::Gt => Some("~gt"),
        BinOpKind::Gte => Some("~ge"),
        BinOpKind::In => Some("~in"),
        BinOpKind::Add => Some("~add"),
        BinOpKind::Mul => Some("~mul"),
        BinOpKind::Concat => Some("~concat"),
        BinOpKind::ScAnd
        | BinOpKind::ScOr
        | BinOpKind::Sub
        | BinOpKind::Div
        | BinOpKind::FloorDiv
        | BinOpKind::Rem
        | BinOpKind::Pow => None,
    }
}

/// Wraps an operand of arithmetic.
fn number(expr: Expr<'_>) -> Expr<'_> {
    let span = expr.span();
    if matches!(expr, Expr::Const(_)) { expr } else { call("~number", vec![expr], span) }
}

fn emit(expr: Expr<'_>, span: Span) -> Stmt<'_> {
    Stmt::EmitExpr(Spanned::new(EmitExpr { expr }, span))
}

fn constant<'a>(value: Value, span: Span) -> Expr<'a> {
    Expr::Const(Spanned::new(Const { value }, span))
}

fn call<'a>(function: &'static str, args: Vec<Expr<'a>>, span: Span) -> Expr<'a> {
    let expr = Expr::Var(Spanned::new(Var { id: function }, span));
    Expr::Call(Spanned::new(Call { expr, args: args.into_iter().map(CallArg::Pos).collect() }, span))
}

/// Copies an assignment target.
fn target<'a>(expr: &Expr<'a>) -> Result<Expr<'a>, Error> {
    let span = expr.span();
    Ok(match expr {
        Expr::Var(v) => Expr::Var(Spanned::new(Var { id: v.id }, span)),
        Expr::GetAttr(g) => Expr::GetAttr(Spanned::new(GetAttr { expr: target(&g.expr)?, name: g.name }, span)),
        Expr::List(l) => {
            Expr::List(Spanned::new(List { items: l.items.iter().map(target).collect::<Result<_, _>>()? }, span))
        }
        Expr::Tuple(t) => {
            Expr::List(Spanned::new(List { items: t.items.iter().map(target).collect::<Result<_, _>>()? }, span))
        }
        Expr::Const(_)
        | Expr::Slice(_)
        | Expr::UnaryOp(_)
        | Expr::BinOp(_)
        | Expr::Compare(_)
        | Expr::IfExpr(_)
        | Expr::Filter(_)
        | Expr::Test(_)
        | Expr::GetItem(_)
        | Expr::Call(_)
        | Expr::Map(_) => return Err(refused("an assignment to this")),
    })
}
