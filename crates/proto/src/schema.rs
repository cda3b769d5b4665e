//! Every operation with its JSON schemas, for tools that offer them to a model.

use schemars::{JsonSchema, Schema, schema_for};

use crate::{Operation, exec, files, session};

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

/// All operations of this protocol version.
pub fn operations() -> Vec<Described> {
    vec![
        describe::<session::Hello>(),
        describe::<session::Lifetime>(),
        describe::<session::Protections>(),
        describe::<exec::Run>(),
        describe::<exec::Start>(),
        describe::<exec::Attach>(),
        describe::<exec::Input>(),
        describe::<exec::Signal>(),
        describe::<exec::Status>(),
        describe::<exec::List>(),
        describe::<files::Read>(),
        describe::<files::Write>(),
        describe::<files::Edit>(),
        describe::<files::Ls>(),
        describe::<files::Stat>(),
        describe::<files::Tree>(),
        describe::<files::Glob>(),
        describe::<files::Grep>(),
        describe::<files::Delete>(),
        describe::<files::Mkdir>(),
        describe::<files::Move>(),
        describe::<files::Download>(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_every_request_is_described() {
        let all = operations();
        let mut names: Vec<_> = all.iter().map(|operation| operation.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len(), "two operations have one name");
        for operation in all {
            let properties = operation.request.get("properties").and_then(|value| value.as_object());
            for (field, schema) in properties.into_iter().flatten() {
                assert!(schema.get("description").is_some(), "{}: {field} has no description", operation.name);
            }
        }
    }
}
