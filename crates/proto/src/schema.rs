//! Every operation with its JSON schemas, for tools that offer them to a model.

#[cfg(test)]
mod typescript;

use schemars::{JsonSchema, Schema, schema_for};

use crate::Operation;
use crate::operation::every_operation;

/// One operation, described.
#[derive(Debug, Clone)]
pub struct Described {
    /// Its name and the last part of its route.
    pub name: &'static str,
    /// Whether it changes something.
    pub mutates: bool,
    /// The head of its request.
    pub request: Schema,
    /// The head of its answer.
    pub answer: Schema,
}

fn describe<O>() -> Described
where
    O: Operation + JsonSchema,
    O::Output: JsonSchema,
{
    Described { name: O::NAME, mutates: O::MUTATES, request: schema_for!(O), answer: schema_for!(O::Output) }
}

macro_rules! schemas {
    ($($group:ident in $module:ident: $($operation:ident),+;)+) => {
        /// The operations of [`OPERATIONS`](crate::OPERATIONS), in the same order, with their schemas.
        pub fn operations() -> Vec<Described> {
            vec![$($(describe::<crate::$module::$operation>(),)+)+]
        }
    };
}
every_operation!(schemas);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_every_request_is_described() {
        for operation in operations() {
            let properties = operation.request.get("properties").and_then(|value| value.as_object());
            for (field, schema) in properties.into_iter().flatten() {
                assert!(schema.get("description").is_some(), "{}: {field} has no description", operation.name);
            }
        }
    }
}
