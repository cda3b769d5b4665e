//! Settings from JavaScript.

use std::path::Path;

use podbay::config::Config;
use serde_json::{Map, Value as Json};

use crate::failure::Failure;

/// The settings of an object: options override `PODBAY_…`, which override files, which override the defaults.
pub fn gather(mut given: Map<String, Json>) -> Result<Config, Failure> {
    let file = match given.remove("config") {
        None | Some(Json::Null) => None,
        Some(Json::String(path)) => Some(path),
        Some(_) => return Err(Failure::Argument("config is the path of a settings file".to_owned())),
    };
    let mut config = Config::of_process_with(file.as_deref().map(Path::new))?;
    match given.remove("mode") {
        None | Some(Json::Null) => {}
        Some(mode) => config.set_value("mode", &mode)?,
    }
    let given = given.into_iter().filter(|(_, value)| !value.is_null());
    config.set_arguments(given.map(|(name, value)| (snake_case(&name), value)))?;
    Ok(config)
}

/// `idleTtl` is the setting `idle_ttl`.
fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for character in name.chars() {
        if character.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
    }
    snake
}
