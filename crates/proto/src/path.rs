//! Paths as the kernel has them: bytes, not necessarily UTF-8.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path or a file name inside a sandbox: any bytes.
///
/// In JSON it is a string when it is valid UTF-8 and `{"hex": "…"}` otherwise, so that no name is ever altered on its way
/// and a name that came out of one operation can go into the next.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RawPath(Vec<u8>);

impl RawPath {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, if it is valid UTF-8.
    pub fn to_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// The text for people: bytes that aren't UTF-8 are replaced.
    pub fn to_string_lossy(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// True for the empty path.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes, owned.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl std::fmt::Display for RawPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_string_lossy())
    }
}

impl std::fmt::Debug for RawPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.to_string_lossy())
    }
}

impl From<&str> for RawPath {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<String> for RawPath {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<&RawPath> for RawPath {
    fn from(path: &RawPath) -> Self {
        path.clone()
    }
}

impl From<Vec<u8>> for RawPath {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<&[u8]> for RawPath {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form<T> {
    Text(T),
    Hex { hex: String },
}

impl Serialize for RawPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.to_str() {
            Some(text) => Form::Text(text),
            None => Form::Hex { hex: self.0.iter().map(|byte| format!("{byte:02x}")).collect() },
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Form::<String>::deserialize(deserializer)? {
            Form::Text(text) => Ok(Self(text.into_bytes())),
            Form::Hex { hex } => from_hex(&hex)
                .map(Self)
                .ok_or_else(|| serde::de::Error::custom("a path in hexadecimal needs two digits 0-9a-f for each byte")),
        }
    }
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|value| value as u8);
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for RawPath {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Path".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_a_json_string_and_other_bytes_survive_as_hex() {
        for (path, json) in [
            (RawPath::from("/a/ü \"b\""), r#""/a/ü \"b\"""#),
            (RawPath::from(&b"/a/\xff\x00"[..]), r#"{"hex":"2f612fff00"}"#),
            (RawPath::default(), r#""""#),
        ] {
            assert_eq!(serde_json::to_string(&path).unwrap(), json);
            assert_eq!(serde_json::from_str::<RawPath>(json).unwrap(), path);
        }
    }

    #[test]
    fn broken_hex_is_refused() {
        for json in [r#"{"hex":"2"}"#, r#"{"hex":"zz"}"#, r#"{"hex":"é"}"#, "7", "null"] {
            assert!(serde_json::from_str::<RawPath>(json).is_err(), "{json}");
        }
    }
}
