//! Templates written by tenants, for prompts and scripts: minijinja with limits on instructions, work and memory
//! (docs/design/guards.md).

mod meter;
mod numbers;
mod reads;
mod rewrite;
mod values;

use std::{
    collections::{BTreeMap, HashSet},
    sync::OnceLock,
};

use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value,
    machinery::{self, CodeGenerator, Instructions},
    value::{Rest, ValueOrKwargs},
};

use self::meter::Allowance;
pub use self::{
    meter::{MAX_MEMORY, MAX_WORK, hold, work},
    numbers::value_of,
    reads::{Read, reads},
    values::{held, to_json},
};

use crate::cpu_lane::CpuLane;

/// Maximum bytes of a template.
pub const MAX_TEMPLATE_BYTES: usize = 256 << 10;

const NAME: &str = "<template>";
/// Instruction limit of a rendering on an async thread: about a millisecond.
const BRIEF_FUEL: u64 = 20_000;
/// Maximum bytes of template and context that are parsed and converted on an async thread.
const BRIEF_BYTES: usize = 64 << 10;

static COSTLY: CpuLane = CpuLane::new();

/// Renders templates with one set of filters, functions and limits.
#[derive(Debug)]
pub struct Engine {
    environment: Environment<'static>,
    /// Copy of `environment` with less fuel, created at the first rendering.
    brief: OnceLock<Environment<'static>>,
    filters: HashSet<&'static str>,
    max_output: usize,
}

impl Engine {
    /// Creates an engine whose templates may execute `fuel` instructions and render `max_output` bytes.
    #[must_use]
    pub fn new(fuel: u64, max_output: usize) -> Self {
        let mut environment = Environment::empty();
        environment.set_debug(false);
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(fuel));
        environment.set_formatter(values::emit);
        let filters = values::register(&mut environment);
        Self { environment, brief: OnceLock::new(), filters, max_output }
    }

    /// Adds a filter. The filter must charge its allocations to [`hold`] and its reads to [`work`].
    pub fn add_filter(
        &mut self,
        name: &'static str,
        filter: impl Fn(&mut State, &[Value]) -> Result<Value, Error> + Send + Sync + 'static,
    ) {
        self.filters.insert(name);
        self.environment
            .add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| filter(state, &args.into_values()));
    }

    /// Adds a function, with the duties of [`add_filter`](Self::add_filter).
    pub fn add_function(
        &mut self,
        name: &'static str,
        function: impl Fn(&mut State, &[Value]) -> Result<Value, Error> + Send + Sync + 'static,
    ) {
        self.environment.add_function(name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
            function(state, &args.into_values())
        });
    }

    /// Validates a template without rendering it, and returns the names of variables it may read.
    ///
    /// # Errors
    /// Fails if the template is too large, cannot be parsed, or uses a construct whose cost cannot be bounded.
    pub fn check(&self, source: &str) -> Result<HashSet<String>, Error> {
        Ok(self.compile(source)?.1)
    }

    /// Renders a template. Numbers that `context` makes with [`value_of`] print with their original digits.
    ///
    /// A rendering that exceeds about a millisecond starts again in the CPU lane, while the runtime's other tasks
    /// continue. `context_bytes` is the approximate size of the data that `context` converts per call.
    ///
    /// # Errors
    /// Same as [`check`](Self::check); also fails if an expression fails or a limit is exceeded.
    pub async fn render(
        &self,
        source: &str,
        context_bytes: usize,
        context: impl Fn() -> Value + Sync,
    ) -> Result<String, Error> {
        if source.len() + context_bytes <= BRIEF_BYTES {
            let done = self.render_within(Allowance::Brief, source, &context);
            let is_exceeded = |error: &Error| error.kind() == ErrorKind::OutOfFuel || meter::is_exceeded();
            if !done.as_ref().is_err_and(is_exceeded) {
                return done;
            }
        }
        let rendered = COSTLY.turn().await.run(|| self.render_within(Allowance::Whole, source, &context));
        rendered.unwrap_or_else(|error| Err(meter::invalid(format!("no thread could be started: {error}"))))
    }

    fn render_within(
        &self,
        allowance: Allowance,
        source: &str,
        context: &(dyn Fn() -> Value + Sync),
    ) -> Result<String, Error> {
        let (instructions, _) = self.compile(source)?;
        let environment = match allowance {
            Allowance::Whole => &self.environment,
            Allowance::Brief => self.brief.get_or_init(|| {
                let mut environment = self.environment.clone();
                environment.set_fuel(environment.fuel().map(|fuel| fuel.min(BRIEF_FUEL)));
                environment
            }),
        };
        let blocks = BTreeMap::new();
        let mut text = String::new();
        meter::begin(allowance);
        let _kept = numbers::Kept::begin();
        let mut out = machinery::make_string_output(&mut text);
        machinery::eval(environment, &instructions, context(), &blocks, &mut out, AutoEscape::None)?;
        drop(out);
        if text.len() > self.max_output {
            let detail = format!("it is {} bytes long, {} are allowed", text.len(), self.max_output);
            return Err(Error::new(ErrorKind::InvalidOperation, detail));
        }
        Ok(text)
    }

    fn compile<'s>(&self, source: &'s str) -> Result<(Instructions<'s>, HashSet<String>), Error> {
        if source.len() > MAX_TEMPLATE_BYTES {
            let detail = format!("the template is {} bytes long, {MAX_TEMPLATE_BYTES} are allowed", source.len());
            return Err(Error::new(ErrorKind::SyntaxError, detail));
        }
        rewrite::refuse_long_chains(source)?;
        let parsed = machinery::parse(source, NAME, minijinja::syntax::SyntaxConfig::default())?;
        let mut rewrite = rewrite::Rewrite::new(&self.filters);
        let bounded = rewrite.stmt(&parsed)?;
        let mut generator = CodeGenerator::new(NAME, source);
        generator.compile_stmt(&bounded);
        Ok((generator.finish().0, rewrite.names()))
    }
}

#[cfg(test)]
mod tests;
