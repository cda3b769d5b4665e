//! What people read is run: the help texts, and every example of the documentation.
//!
//! `TRYCMD=overwrite cargo test -p podbay-cli --test cli documents` writes down what comes out; read the difference.

#[test]
fn help_tables_json_and_errors_are_as_written() {
    let home = crate::home::Home::new();
    let cases = trycmd::TestCases::new();
    cases.env("PODBAY_HOME", home.path().to_str().unwrap());
    cases.env("XDG_CONFIG_HOME", home.path().join("config").to_str().unwrap());
    cases.env("NO_COLOR", "1");
    cases.case("tests/cmd/*.trycmd");
    cases.case("../../docs/cli.md");
    cases.case("../../docs/quick-start.md");
    cases.run();
}
