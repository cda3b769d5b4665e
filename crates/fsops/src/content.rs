//! The content that belongs to a result.

use std::fs::File;
use std::io::{self, Cursor, Read, Take};

/// The content that belongs to a result: in memory, or still in its file.
#[derive(Debug)]
pub enum FileContent {
    /// In memory.
    Bytes(Vec<u8>),
    /// In an open file, from its current position up to the limit.
    File(Take<File>),
}

impl FileContent {
    /// Its length; a file that shrinks meanwhile has less.
    pub fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.limit(),
        }
    }

    /// A reader, to send it piece by piece.
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
