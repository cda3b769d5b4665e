//! Prints what this machine can do: `cargo run -p podbay-jail --example probe`.

fn main() {
    let report = podbay_jail::probe();
    println!("isolation: {:?}", report.isolation);
    for finding in report.findings {
        println!("{} {}: {}", if finding.available { "+" } else { "-" }, finding.what, finding.detail);
        if let Some(fix) = finding.fix {
            println!("    {fix}");
        }
    }
}
