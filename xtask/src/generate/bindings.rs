//! Reads what the macros of the Python bindings define, from their source: `result_class!`, `iterable!` and `sync_and_async!`.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// A result class.
#[derive(Debug, Default)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Its attributes, in order.
    pub attributes: Vec<Attribute>,
    /// The attribute over which it iterates.
    pub iterates: Option<String>,
}

/// An attribute of a result class.
#[derive(Debug, Clone)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// Its type in Rust, without spaces.
    pub kind: String,
    /// The words that its text can be; empty if it can be any.
    pub words: Vec<String>,
}

/// A method that blocks, and its twin that doesn't.
#[derive(Debug)]
pub struct Method {
    /// The name of the one that blocks.
    pub sync: String,
    /// The name of the other one.
    pub twin: String,
    /// The types of the arguments in Rust, without spaces.
    pub kinds: BTreeMap<String, String>,
    /// The Python signature: names with their defaults in Rust, and `*`.
    pub signature: Vec<(String, Option<String>)>,
    /// The type of the result in Rust, without spaces.
    pub output: String,
}

/// What one file defines.
#[derive(Debug, Default)]
pub struct Bindings {
    /// Its result classes.
    pub classes: Vec<Class>,
    /// Its methods.
    pub methods: Vec<Method>,
}

impl Bindings {
    /// Reads a source file.
    ///
    /// # Errors
    /// When one of the macros is used in a way that isn't understood here.
    pub fn read(source: &str) -> Result<Self> {
        let tokens: TokenStream = source.parse().map_err(|error| anyhow::anyhow!("isn't Rust: {error}"))?;
        let mut found = Self::default();
        let mut shared: BTreeMap<String, Vec<Attribute>> = BTreeMap::new();
        for (name, tokens) in macros(&list(tokens)) {
            match name.as_str() {
                "result_class" => found.classes.extend(classes(tokens, &[])?),
                "sync_and_async" => found.methods.extend(methods(tokens)?),
                "iterable" => {
                    for row in split(&tokens, ';') {
                        let (class, attribute) = (word(row.first())?, word(row.get(2))?);
                        let class = found.classes.iter_mut().find(|known| known.name == class);
                        class.context("iterable! names an unknown class")?.iterates = Some(attribute);
                    }
                }
                defined if defined.starts_with("macro_rules ") => {
                    if let Some(attributes) = shared_attributes(&tokens)? {
                        shared.insert(defined.trim_start_matches("macro_rules ").to_owned(), attributes);
                    }
                }
                other => {
                    if let Some(attributes) = shared.get(other) {
                        found.classes.extend(classes(tokens, attributes)?);
                    }
                }
            }
        }
        Ok(found)
    }
}

fn list(tokens: TokenStream) -> Vec<TokenTree> {
    tokens.into_iter().collect()
}

fn is(token: Option<&TokenTree>, punctuation: char) -> bool {
    matches!(token, Some(TokenTree::Punct(found)) if found.as_char() == punctuation)
}

fn group(token: Option<&TokenTree>, delimiter: Delimiter) -> Option<&Group> {
    match token {
        Some(TokenTree::Group(group)) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

/// A name; `r#move` is `move`.
fn word(token: Option<&TokenTree>) -> Result<String> {
    match token {
        Some(TokenTree::Ident(name)) => Ok(name.to_string().trim_start_matches("r#").to_owned()),
        other => bail!("expected a name, found {other:?}"),
    }
}

/// The code without spaces.
fn code(tokens: &[TokenTree]) -> String {
    let stream: TokenStream = tokens.iter().cloned().collect();
    stream.to_string().replace([' ', '\n'], "")
}

fn split(tokens: &[TokenTree], at: char) -> Vec<&[TokenTree]> {
    tokens.split(|token| is(Some(token), at)).filter(|part| !part.is_empty()).collect()
}

/// The macros that are called at the top, and, as `macro_rules name`, those that are defined.
fn macros(tokens: &[TokenTree]) -> Vec<(String, Vec<TokenTree>)> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate().filter(|(at, _)| is(tokens.get(at + 1), '!')) {
        match (token, tokens.get(at + 2), tokens.get(at + 3)) {
            (TokenTree::Ident(name), Some(TokenTree::Group(body)), _) => {
                found.push((name.to_string(), list(body.stream())));
            }
            (TokenTree::Ident(rules), Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) => {
                found.push((format!("{rules} {name}"), list(body.stream())));
            }
            _ => {}
        }
    }
    found
}

/// The attributes that a macro gives to each class: those in the `result_class!` that it expands to.
fn shared_attributes(rules: &[TokenTree]) -> Result<Option<Vec<Attribute>>> {
    let Some(body) = rules.iter().rev().find_map(|token| group(Some(token), Delimiter::Brace)) else { return Ok(None) };
    let Some((_, tokens)) = macros(&list(body.stream())).into_iter().find(|(name, _)| name == "result_class") else {
        return Ok(None);
    };
    let rows = tokens.iter().rev().find_map(|token| group(Some(token), Delimiter::Brace)).context("no attributes")?;
    attributes(&list(rows.stream())).map(Some)
}

/// Rows `Class(Inner) as name, … { attributes }`.
fn classes(tokens: Vec<TokenTree>, shared: &[Attribute]) -> Result<Vec<Class>> {
    let mut found = Vec::new();
    let mut name = None;
    let mut rest = tokens.iter();
    while let Some(token) = rest.next() {
        if is(Some(token), '#') {
            rest.next();
        } else if let Some(rows) = group(Some(token), Delimiter::Brace) {
            let name = name.take().context("a class has no name")?;
            let attributes = [shared, &attributes(&list(rows.stream()))?].concat();
            found.push(Class { name, attributes, iterates: None });
        } else if name.is_none() {
            name = Some(word(Some(token))?);
        }
    }
    Ok(found)
}

/// Rows `name: Type ["word", …] = expression,`. What a macro adds at the end, `$($rest)*`, isn't one of them.
fn attributes(tokens: &[TokenTree]) -> Result<Vec<Attribute>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() && !is(tokens.get(at), '$') {
        if is(tokens.get(at), '#') {
            at += 2;
            continue;
        }
        let name = word(tokens.get(at))?;
        ensure!(is(tokens.get(at + 1), ':'), "{name} has no type");
        let rest = tokens.get(at + 2..).unwrap_or_default();
        let equals =
            rest.iter().position(|token| is(Some(token), '=')).with_context(|| format!("{name} has no value"))?;
        let mut kind = &rest[..equals];
        let mut words = Vec::new();
        if let Some(given) = group(kind.last(), Delimiter::Bracket) {
            let given = list(given.stream());
            if matches!(given.first(), Some(TokenTree::Literal(_))) {
                words = split(&given, ',').into_iter().map(|word| code(word).trim_matches('"').to_owned()).collect();
                kind = &kind[..equals - 1];
            }
        }
        found.push(Attribute { name, kind: code(kind), words });
        let value = rest[equals..].iter().position(|token| is(Some(token), ',')).unwrap_or(rest.len() - equals);
        at += 2 + equals + value + 1;
    }
    Ok(found)
}

/// Rows `fn sync / twin(this, argument: Type) [signature] -> Output { body }` in `impl Class { … }`.
fn methods(tokens: Vec<TokenTree>) -> Result<Vec<Method>> {
    let body = tokens.iter().rev().find_map(|token| group(Some(token), Delimiter::Brace)).context("no methods")?;
    let tokens = list(body.stream());
    let mut found = Vec::new();
    for (at, _) in tokens.iter().enumerate().filter(|(_, token)| word(Some(token)).is_ok_and(|word| word == "fn")) {
        let sync = word(tokens.get(at + 1))?;
        let twin = word(tokens.get(at + 3))?;
        let arguments =
            group(tokens.get(at + 4), Delimiter::Parenthesis).with_context(|| format!("{sync}: no arguments"))?;
        let signature =
            group(tokens.get(at + 5), Delimiter::Bracket).with_context(|| format!("{sync}: no signature"))?;
        // After `->`.
        let rest = tokens.get(at + 8..).unwrap_or_default();
        let end = rest.iter().position(|token| group(Some(token), Delimiter::Brace).is_some());
        let output = code(&rest[..end.with_context(|| format!("{sync}: no body"))?]);
        let mut kinds = BTreeMap::new();
        for argument in split(&list(arguments.stream()), ',').iter().skip(1) {
            kinds.insert(word(argument.first())?, code(argument.get(2..).unwrap_or_default()));
        }
        let mut parameters = Vec::new();
        for parameter in split(&list(signature.stream()), ',') {
            let default = parameter.get(2..).filter(|default| !default.is_empty()).map(code);
            parameters.push((code(&parameter[..1]), default));
        }
        found.push(Method { sync, twin, kinds, signature: parameters, output });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
        sync_and_async! { impl Sandbox {
            /// Documentation, with a fn in it.
            fn r#move / amove(inner, path: Option<SandboxPath>, mode: u32,) [path=None, *, mode=1_000] -> Moved { body() }
        } }
        macro_rules! like {
            ($(#[doc = $doc:literal])+ $class:ident { $($rest:tt)* }) => {
                result_class! { $class { /// Shared.
                    size: u64 = 1, $($rest)* } }
            };
        }
        result_class! {
            /// One.
            One((A, B)) as one, repr(kind) {
                /// A kind.
                kind: &'static str ["a", "b"] = match one.1 { _ => "a" },
                /// Bytes.
                content: &[u8] = &one.0,
                /// A type with a comma.
                text: Cow<'_, str> = one.text(),
            }
        }
        like! { /// Two.
            Two { /// More.
                more: Vec<One> = f(1, 2), } }
        iterable! { Two.more: |two| two.len(); }
    "#;

    #[test]
    fn what_the_macros_define_is_read() {
        let bindings = Bindings::read(SOURCE).unwrap();
        let shown: Vec<String> = bindings
            .classes
            .iter()
            .flat_map(|class| {
                class.attributes.iter().map(move |row| format!("{}.{}: {}", class.name, row.name, row.kind))
            })
            .collect();
        let one = ["One.kind: &'staticstr", "One.content: &[u8]", "One.text: Cow<'_,str>"];
        assert_eq!(shown, [&one[..], &["Two.size: u64", "Two.more: Vec<One>"]].concat());
        assert_eq!(bindings.classes[0].attributes[0].words, ["a", "b"]);
        assert_eq!(bindings.classes[1].iterates.as_deref(), Some("more"));
        let [method] = &bindings.methods[..] else { panic!("{bindings:?}") };
        assert_eq!((method.sync.as_str(), method.twin.as_str(), method.output.as_str()), ("move", "amove", "Moved"));
        assert_eq!(method.kinds["path"], "Option<SandboxPath>");
        let signature: Vec<_> =
            method.signature.iter().map(|(name, default)| (name.as_str(), default.as_deref())).collect();
        assert_eq!(signature, [("path", Some("None")), ("*", None), ("mode", Some("1_000"))]);
    }
}
