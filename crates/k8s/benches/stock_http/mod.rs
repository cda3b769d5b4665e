//! The stock runtime's HTTP API, over one connection that is kept open.

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// A connection to the stock runtime at its pod's own address.
pub struct StockConnection(BufReader<TcpStream>);

impl StockConnection {
    pub async fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    pub async fn run_true(&mut self) {
        self.run("true").await;
    }

    pub async fn run(&mut self, command: &str) {
        let request = serde_json::json!({"command": command}).to_string();
        let answer = self.ask("POST /execute", "application/json", request.as_bytes()).await;
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["exit_code"], 0, "{answer}");
    }

    pub async fn download(&mut self, path: &str) -> Vec<u8> {
        self.ask(&format!("GET /download/{path}"), "text/plain", b"").await
    }

    pub async fn upload(&mut self, path: &str, data: &[u8]) {
        let head = format!(
            "--part\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{path}\"\r\nContent-Type: \
             application/octet-stream\r\n\r\n"
        );
        let body = [head.as_bytes(), data, b"\r\n--part--\r\n"].concat();
        self.ask("POST /upload", "multipart/form-data; boundary=part", &body).await;
    }

    async fn ask(&mut self, what: &str, content: &str, body: &[u8]) -> Vec<u8> {
        let head = format!(
            "{what} HTTP/1.1\r\nHost: stock\r\nContent-Type: {content}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        // In one piece: two would wait for each other's acknowledgement.
        self.0.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
        let (mut length, mut status) = (0, String::new());
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).await.unwrap();
            match line.trim().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().unwrap(),
                None if line.trim().is_empty() => break,
                None => status = line,
                Some(_) => {}
            }
        }
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer).await.unwrap();
        assert!(status.contains(" 200 "), "{status} {}", String::from_utf8_lossy(&answer));
        answer
    }
}
