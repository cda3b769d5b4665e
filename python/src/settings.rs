//! Settings from Python: keyword arguments, dataclasses, files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use podbay::config::{Config, ConfigError, MODES, SETTINGS, SettingKind};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyDict, PyFloat, PyInt, PyList, PyMapping, PyMappingMethods, PyString, PyTuple};
use serde_json::Value as Json;

use crate::failure::Failure;

/// One setting, as `podbay.SETTINGS` lists it.
#[pyclass(frozen, get_all, module = "podbay._native")]
pub struct Setting {
    /// Its key in podbay.toml.
    key: &'static str,
    /// Its name in the environment.
    variable: String,
    /// What its value is: text, secret, choice, flag, count, real, size, time, quantity, list, mounts, map, id, object or
    /// objects.
    kind: String,
    /// The allowed values of a choice.
    choices: Vec<&'static str>,
    /// What it does.
    help: &'static str,
    /// The default, in human-readable form.
    default: &'static str,
    /// What a podbay.toml found in the working directory may do with it: no, choose, lower or add.
    in_project: &'static str,
}

/// All settings.
pub fn table() -> Vec<Setting> {
    let entry = |setting: &'static podbay::config::Setting| Setting {
        key: setting.key,
        variable: setting.variable(),
        kind: setting.kind.name(),
        choices: match setting.kind {
            SettingKind::Choice(words) => words.to_vec(),
            _ => Vec::new(),
        },
        help: setting.help,
        default: setting.default_text(),
        in_project: setting.project.as_str(),
    };
    SETTINGS.iter().map(entry).collect()
}

#[pymethods]
impl Setting {
    fn __repr__(&self) -> String {
        format!("Setting({:?}, {})", self.key, self.kind)
    }
}

/// The settings of an object: arguments override `PODBAY_…`, which override files, which override the defaults.
pub fn gather(
    mode: Option<&str>,
    given: Option<&Bound<'_, PyAny>>,
    named: &[(&str, Option<Bound<'_, PyAny>>)],
    more: Option<&Bound<'_, PyDict>>,
) -> Result<Config, Failure> {
    let file = given.map(file_path).transpose()?.flatten();
    let mut config = Config::of_process_with(file.as_deref())?;
    let fields = match given {
        Some(given) => fields_of(given)?,
        None => Vec::new(),
    };
    // The class says which mode it is for.
    let implied = given.and_then(|given| given.get_type().name().ok()).and_then(|name| {
        let mode = MODES.iter().find(|mode| name.to_str().is_ok_and(|name| name == mode.dataclass));
        mode.map(|mode| mode.name)
    });
    if let (Some(mode), Some(implied)) = (mode, implied)
        && mode != implied
    {
        return Err(Failure::Argument(format!(
            "mode={mode:?} contradicts the configuration, which is for {implied:?}; pass only one of them"
        )));
    }
    if let Some(mode) = mode.or(implied) {
        config.set("mode", mode)?;
    }
    let named = named.iter().filter_map(|(key, value)| Some(((*key).to_owned(), value.clone()?)));
    let mut all = fields;
    all.extend(named);
    for (key, value) in more.into_iter().flatten() {
        all.push((key.extract()?, value));
    }
    let said = all.into_iter().filter(|(_, value)| !value.is_none());
    let converted = said.map(|(key, value)| json(&key, &value).map(|value| (key, value)));
    config.set_arguments(converted.collect::<Result<Vec<_>, _>>()?)?;
    Ok(config)
}

/// The path in `config="podbay.toml"`.
fn file_path(given: &Bound<'_, PyAny>) -> PyResult<Option<PathBuf>> {
    let is_path = given.is_instance_of::<PyString>() || given.hasattr("__fspath__")?;
    if is_path { given.extract().map(Some) } else { Ok(None) }
}

/// The names and values of a dataclass or a mapping.
fn fields_of<'py>(given: &Bound<'py, PyAny>) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
    if file_path(given)?.is_some() || given.is_none() {
        return Ok(Vec::new());
    }
    if let Ok(fields) = given.getattr("__dataclass_fields__") {
        let fields = fields.cast_into::<PyDict>()?;
        return fields
            .keys()
            .iter()
            .map(|name| Ok((name.extract()?, given.getattr(name.cast::<PyString>()?)?)))
            .collect();
    }
    if let Ok(mapping) = given.cast::<PyMapping>() {
        return mapping.items()?.iter().map(|pair| pair.extract()).collect();
    }
    let kind = given.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "config has to be a dataclass of podbay.config, a mapping or the path of a file, not {kind}"
    )))
}

fn json(key: &str, value: &Bound<'_, PyAny>) -> Result<Json, Failure> {
    if value.is_none() {
        return Ok(Json::Null);
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(Json::Bool(flag.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        let number: i64 = value.extract().map_err(|_| Failure::Argument(format!("{key}: {value} is too large")))?;
        return Ok(number.into());
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(value.extract::<f64>()?.into());
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.to_str()?.into());
    }
    if value.is_instance_of::<PyDelta>() {
        return Ok(value.call_method0("total_seconds")?.extract::<f64>()?.into());
    }
    if let Ok(mapping) = value.cast::<PyMapping>() {
        let pair = |pair: Bound<'_, PyAny>| {
            let (name, value): (String, Bound<'_, PyAny>) = pair.extract()?;
            let value = json(key, &value)?;
            Ok::<_, Failure>((name, value))
        };
        return mapping.items()?.iter().map(pair).collect::<Result<_, _>>().map(Json::Object);
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        return value.try_iter()?.map(|item| json(key, &item?)).collect::<Result<_, _>>().map(Json::Array);
    }
    if value.hasattr("__fspath__")? {
        let path: PathBuf = value.extract()?;
        return path.to_str().map(Into::into).ok_or_else(|| Failure::Argument(format!("{key}: {path:?} isn't UTF-8")));
    }
    let kind = value.get_type().name().map_err(Failure::from)?;
    Err(Failure::Python(PyTypeError::new_err(format!("{key}: a {kind} can't be a setting"))))
}

/// The settings that an object made with these arguments would have: key, source, and value without secrets.
#[pyfunction]
#[pyo3(signature = (mode=None, *, config=None, **settings))]
pub fn effective_settings(
    mode: Option<&str>,
    config: Option<&Bound<'_, PyAny>>,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<Vec<(String, String, String)>> {
    let config = gather(mode, config, &[], settings)?;
    Ok(config.entries().map(|entry| (entry.key.to_owned(), entry.from, entry.value)).collect())
}

/// The settings in a set of variables, as keyword arguments. Those of a project come from a file that a sandbox may have
/// written, so they may only narrow; otherwise this raises `ConfigError`.
#[pyfunction]
pub fn settings_of_variables(
    variables: Vec<(String, String)>,
    project: Vec<(String, String)>,
    origin: &str,
) -> PyResult<Vec<(&'static str, Py<PyAny>)>> {
    Python::attach(|py| {
        let trusted: Vec<(OsString, OsString)> =
            variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let mut config = Config::of_variables(None, &trusted, Path::new("")).map_err(Failure::from)?;
        config.read_project_variables(project, origin).map_err(Failure::from)?;
        config.variables().map(|(key, value)| Ok((key, object(py, &value)?))).collect()
    })
}

/// The seconds of a time as settings write it, such as "5m". `key` is what it is for.
#[pyfunction]
#[pyo3(name = "_parse_time")]
pub fn parse_time(key: &str, text: &str) -> PyResult<f64> {
    let bad = |reason| ConfigError::BadValue { from: "settings".to_owned(), key: key.to_owned(), reason };
    let time = podbay::quantity::parse_time(text).map_err(bad).map_err(Failure::from)?;
    Ok(time.as_secs_f64())
}

fn object(py: Python<'_>, value: &Json) -> PyResult<Py<PyAny>> {
    let text = serde_json::to_string(value).map_err(|error| Failure::Argument(error.to_string()))?;
    Ok(py.import("json")?.call_method1("loads", (text,))?.unbind())
}

/// One setting alone, for reading a value as the settings would.
pub fn gather_one(key: &str, value: &Bound<'_, PyAny>) -> Result<Config, Failure> {
    let mut config = Config::default();
    config.set_value(key, &json(key, value)?)?;
    Ok(config)
}
