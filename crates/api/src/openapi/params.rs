//! Parameters that many operations have, described once.

use utoipa::{
    IntoParams, PartialSchema,
    openapi::{
        Required,
        path::{Parameter, ParameterBuilder, ParameterIn},
    },
};

fn parameter<T: PartialSchema>(name: &str, place: ParameterIn, description: &str) -> Parameter {
    let required = if place == ParameterIn::Path { Required::True } else { Required::False };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(required)
        .description(Some(description))
        .schema(Some(T::schema()))
        .build()
}

fn path(name: &str, description: &str) -> Parameter {
    parameter::<String>(name, ParameterIn::Path, description)
}

fn query<T>(name: &str, description: &str) -> Parameter
where
    Option<T>: PartialSchema,
{
    parameter::<Option<T>>(name, ParameterIn::Query, description)
}

fn header(name: &str, description: &str) -> Parameter {
    parameter::<Option<String>>(name, ParameterIn::Header, description)
}

/// Declares types that stand for parameters in the attribute of an operation.
macro_rules! parameters {
    ($($name:ident => [$($parameter:expr),+ $(,)?];)+) => {$(
        pub(crate) struct $name;

        impl IntoParams for $name {
            fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
                vec![$($parameter),+]
            }
        }
    )+};
}

parameters! {
    Id => [path("id", "Its id")];
    Limit => [query::<i64>("limit", "1 to 200; 50 when absent")];
    Cursor => [query::<String>("cursor", "`next_cursor` of the page before")];
    Tenants => [
        query::<String>("org_id", "Of this organisation; needs the scope `admin`"),
        query::<String>("group_id", "Of this group of `org_id`"),
        query::<bool>("all_tenants", "Of all tenants; needs the scope `admin`"),
    ];
    SubmitKey => [header("Idempotency-Key", "The same key gives the same execution")];
    InRunHeaders => [
        header("Longhaul-Run", "Key of the durable run that the request belongs to"),
        header("Longhaul-Attempt", "Id of this start of the program; required with a run"),
        header("Longhaul-Step", "Name of the call, in place of its content"),
        header("Longhaul-Execution", "Execution that a worker over HTTP holds, whose call this is"),
        header("Longhaul-Lease", "Token of its lease"),
    ];
    Wait => [header(
        "Prefer",
        "`wait=N` holds the answer until the execution is over, at most 60 s; with `return=minimal` the body is \
            `{\"id\"}`, not an `Execution`",
    )];
}
