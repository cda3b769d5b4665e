//! The bytes that belong to a result.

use std::fs::File;
use std::io::{self, Cursor, Read, Take};

/// The bytes that belong to a result: in memory, or still in their file.
#[derive(Debug)]
pub enum Content {
    /// In memory.
    Bytes(Vec<u8>),
    /// In an open file, from where it stands, and not more than the limit.
    File(Take<File>),
}

impl Content {
    /// How many bytes there are; a file that shrinks meanwhile has fewer.
    pub fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.limit(),
        }
    }

    /// A reader of it, to send it piece by piece.
    pub fn into_reader(self) -> Box<dyn Read + Send> {
        match self {
            Self::Bytes(bytes) => Box::new(Cursor::new(bytes)),
            Self::File(file) => Box::new(file),
        }
    }

    /// All of it, in memory.
    ///
    /// # Errors
    /// When the file can't be read.
    pub fn into_bytes(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::File(mut file) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes)?;
                Ok(bytes)
            }
        }
    }
}
