//! Names of types that request bodies use, for answers that contain them: `#[schema(value_type = spec::Plan)]`.
//! [`super::bodies`] has their schemas.

use std::borrow::Cow;

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{Object, RefOr, Schema},
};

macro_rules! specs {
    ($($name:ident),+ $(,)?) => {$(
        #[derive(Debug)]
        pub(crate) enum $name {}

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                RefOr::T(Schema::Object(Object::new()))
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }
        }
    )+};
}

specs!(
    AccessSpec,
    CatalogueToolSpec,
    ExecutionStrategy,
    OnBusy,
    OnExhausted,
    Plan,
    RetrievedItem,
    RuleSpec,
    RuntimeProfile,
    ScheduleSpec,
    ToolEffect,
);
