//! Values that no caller should send.

/// The placeholder of a hostile literal in a body: `serde_json` cannot represent all of them.
pub(crate) const MARK: &str = "@@hostile@@";

/// Texts for paths, queries, cursors and headers, and as strings in bodies.
pub(crate) fn texts() -> Vec<String> {
    let long = |length| "a".repeat(length);
    let mut texts: Vec<String> = [
        "",
        " ",
        "\0",
        "a\0b",
        "\u{202e}\u{2066}abc\u{2069}",
        "\u{feff}x",
        "\u{1b}[31mred\u{1b}]0;title\u{7}",
        "\u{7f}\u{85}\u{9b}",
        "line\r\nbreak: yes",
        "\u{1f4b8}e\u{301}\u{fb00}",
        "-1",
        "0",
        "1",
        "-0",
        "00",
        "101",
        "4096",
        "65536",
        "2147483648",
        "4294967295",
        "4294967296",
        "9007199254740993",
        "9223372036854.775807",
        "9223372036854.775808",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "18446744073709551614",
        "18446744073709551615",
        "18446744073709551616",
        "340282366920938463463374607431768211455",
        "0.000001",
        "0.0000001",
        "1e3",
        "1e308",
        "1e999",
        "NaN",
        "Infinity",
        "0x10",
        "+1",
        "true",
        "null",
        "after:18446744073709551615",
        "after:18446744073709551614",
        "after:9223372036854775807",
        "after:0",
        "after:",
        "after:-1",
        "after:1:2",
        "7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
        "ZZZZZZZZZZZZZ",
        "0000000000000",
        "7ZZZZZZZZZZZZ",
        "FZZZZZZZZZZZZ",
        "01JAB2C3D4E5F6G7H8J9K0MNPQ",
        "hold_7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
        "hold_01JAB2C3D4E5F6G7H8J9K0MNPQ",
        "charge_7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
        "job_7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
        "att_0000000000001000000000001",
        "att_ZZZZZZZZZZZZZZZZZZZZZZZZZ",
        "att_7ZZZZZZZZZZZZZZZZZZZZZZZZ",
        "key_7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
        "../keys",
        "a/b",
        "%",
        "%00",
        "%zz",
        "%ff%fe",
        "%2e%2e%2f",
        "*",
        "a|b",
        "a,b",
        "a=b&c=d",
        "'; DROP TABLE holds; --",
        "{}",
        "[]",
        "\"\\",
        "umbra",
        "umbra-hold",
        "umbra-job",
        "platform",
        "acme",
        "acme:",
        ":acme",
        "acme::nlp",
        "ACME",
        "acme:nlp:x:1:2:3:4:5",
        "acme:nlp:x:1:2:3:4:5:6:7:8:9",
        "a.0",
        "a.999",
        "a.18446744073709551615",
        "-9999-01-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00.000Z",
        "1969-12-31T23:59:59.999Z",
        "1970-01-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-06-30T23:59:60Z",
        "2026-01-31T12:00:00+25:59",
        "2026-01-31T12:00:00.123456789123Z",
        "9999-12-31T23:59:59.999Z",
        "9999-12-31T23:59:59.999-23:59",
        "+10000-01-01T00:00:00Z",
        "+292278994-08-17T07:12:55.807Z",
        "P1D",
        "24h",
        "Basic YWRtaW46YWRtaW4=",
        "Bearer",
        "Bearer \u{0}",
        "Bearer brs_7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
        "00-00000000000000000000000000000000-0000000000000000-00",
        "00-ffffffffffffffffffffffffffffffff-ffffffffffffffff-ff",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        "text/plain",
        "application/json; charset=utf-16",
        "application/json;;;=",
        "multipart/form-data; boundary=x",
    ]
    .map(str::to_owned)
    .into();
    texts.extend([63, 64, 65, 256, 257, 1025, 5000, 20_000].map(long));
    texts.push("\u{202e}".repeat(300));
    texts.push("acme:".repeat(2000));
    texts
}

/// How many [`literals`] come before the texts.
pub(crate) const NO_TEXTS: usize = 53;

/// Literals for a field of a body: non-strings, every string, and large values.
pub(crate) fn literals() -> Vec<String> {
    let literals: [&str; NO_TEXTS] = [
        "null",
        "true",
        "false",
        "0",
        "-0",
        "1",
        "-1",
        "2",
        "64",
        "1000",
        "65535",
        "65536",
        "1440",
        "-1440",
        "86400",
        "315360000",
        "315360001",
        "2147483647",
        "2147483648",
        "-2147483649",
        "4294967295",
        "4294967296",
        "9007199254740993",
        "9223372036854",
        "9223372036855",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "18446744073709551615",
        "18446744073709551616",
        "1e400",
        "-1e400",
        "0.5",
        "1.0",
        "1e2",
        "NaN",
        "01",
        "{}",
        "[]",
        "[null]",
        "[[]]",
        "{\"a\":1,\"a\":2}",
        "{\"\":\"\"}",
        "{\"\\u0000\":\"\\u0000\"}",
        "{\"a=b\":\"c\"}",
        "[\"\"]",
        "[\"acme\",\"acme\"]",
        "[1,\"a\",{}]",
        "[\"umbra-job\"]",
        "\"\\ud800\"",
        "\"\\u0000\"",
        "\"unfinished",
    ];
    let mut literals: Vec<String> = literals.map(str::to_owned).into();
    literals.extend(texts().iter().map(|text| serde_json::Value::from(text.as_str()).to_string()));
    let many = |item: &str, count| format!("[{}]", vec![item; count].join(","));
    let names = |count| -> String {
        let fields: Vec<String> = (0..count).map(|n| format!("\"k{n}\":\"v\"")).collect();
        format!("{{{}}}", fields.join(","))
    };
    literals.push(many("\"H100\"", 65));
    literals.push(many("1", 2000));
    literals.push(many("\"a\"", 1025));
    literals.push(many("{}", 1001));
    literals.push(names(65));
    literals.push(names(5000));
    literals.push(format!("{}{}", "[".repeat(100), "]".repeat(100)));
    literals.push(format!("{}1{}", "{\"a\":".repeat(200), "}".repeat(200)));
    literals.push("[".repeat(100_000));
    literals.push(format!("\"{}\"", "x".repeat(30_000)));
    literals.push(format!("[{}]", vec![format!("\"{}\"", "x".repeat(1000)); 30].join(",")));
    literals.push(format!("{{\"BIG\":\"{}\"}}", "x".repeat(30_000)));
    literals
}

/// Whole bodies.
pub(crate) fn bodies() -> Vec<Vec<u8>> {
    let mut bodies: Vec<Vec<u8>> = [
        "",
        " ",
        "null",
        "true",
        "1",
        "\"\"",
        "[]",
        "[{}]",
        "{}",
        "{",
        "}",
        "{}{}",
        "{\"a\"}",
        "nul",
        "{\"id\":\"a\",\"id\":\"b\"}",
        "NaN",
        "\u{feff}{}",
        "id=a&account=acme",
        "<a/>",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    bodies.push(vec![0xff, 0xfe, b'{', 0, b'}', 0]);
    bodies.push(b"{\"id\":\"\xc3\x28\"}".to_vec());
    bodies.push(vec![0; 1000]);
    bodies.push("[".repeat(200_000).into_bytes());
    bodies.push("{\"a\":".repeat(50_000).into_bytes());
    bodies.push(format!("{{\"a\":\"{}\"}}", "x".repeat(3 << 20)).into_bytes());
    bodies
}
