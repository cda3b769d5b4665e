//! For each field of a mode's configuration an example of what it does to the object that is a sandbox. Fields that do
//! something else have a row in podbay's table of the tests that see settings take effect.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A field, a value that isn't its default, the place in the object (a JSON pointer), and what is there then; null where there
/// is nothing.
pub(crate) type Example = (&'static str, Value, &'static str, Value);

/// podbay's table: a setting, a mode or `any`, and a test.
const EFFECTS: &str = include_str!("../../podbay/src/config/effects.txt");

/// Checks that every field of a mode's configuration has an example, and that each example happens.
pub(crate) fn check<C>(mode: &str, config: &C, examples: &[Example], object: impl Fn(&C) -> Value)
where
    C: Serialize + DeserializeOwned,
{
    let fields = serde_json::to_value(config).unwrap();
    for field in fields.as_object().unwrap().keys() {
        assert!(
            examples.iter().any(|(name, ..)| name == field) || has_a_test(mode, field),
            "{field}: add an example here, or the test that sees it take effect in podbay/src/config/effects.txt"
        );
    }
    let before = object(config);
    for (field, value, pointer, wanted) in examples {
        let mut changed = fields.clone();
        changed[field] = value.clone();
        let after = object(&serde_json::from_value(changed).unwrap());
        let at = |object: &Value| object.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!(at(&after), *wanted, "{field} isn't at {pointer}");
        assert_ne!(at(&before), *wanted, "{pointer} doesn't depend on {field}");
    }
}

/// Whether the table names a test for the setting that fills a field.
fn has_a_test(mode: &str, field: &str) -> bool {
    let keys = [field.to_owned(), format!("{}.{field}", mode.replace('-', "_")), format!("cluster.{field}")];
    EFFECTS.lines().any(|line| {
        let mut words = line.split_whitespace();
        let (key, of) = (words.next(), words.next());
        keys.iter().any(|one| Some(one.as_str()) == key) && (of == Some(mode) || of == Some("any"))
    })
}
