//! Input for fuzz targets, from a dictionary, a seed and what came before.

use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

/// How many inputs are kept to make others from.
const CORPUS: usize = 256;

/// The longest input.
const LONGEST: usize = 4096;

/// An endless supply of input.
pub(crate) struct Inputs {
    pieces: &'static [&'static str],
    corpus: Vec<Vec<u8>>,
    random: SmallRng,
}

impl Inputs {
    pub(crate) fn new(pieces: &'static [&'static str], seed: u64) -> Self {
        let corpus = pieces.iter().map(|piece| piece.as_bytes().to_vec()).collect();
        Self { pieces, corpus, random: SmallRng::seed_from_u64(seed) }
    }

    /// The next input: pieces put together, or an older one changed.
    pub(crate) fn next(&mut self) -> Vec<u8> {
        let mut input = match self.random.random_bool(0.5) {
            true => (0..self.random.random_range(0..24)).flat_map(|_| self.piece()).collect(),
            false => self.older(),
        };
        for _ in 0..self.random.random_range(0..4) {
            self.mutate(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    /// Keeps an input, in place of another once there are many.
    pub(crate) fn keep(&mut self, input: Vec<u8>) {
        if self.corpus.len() < CORPUS {
            self.corpus.push(input);
        } else if self.random.random_ratio(1, 16) {
            let place = self.random.random_range(0..CORPUS);
            self.corpus[place] = input;
        }
    }

    fn older(&mut self) -> Vec<u8> {
        let place = self.random.random_range(0..self.corpus.len());
        self.corpus[place].clone()
    }

    fn piece(&mut self) -> Vec<u8> {
        match self.random.random_ratio(1, 10) {
            true => (0..self.random.random_range(0..4)).map(|_| self.random.next_u32() as u8).collect(),
            false => self.pieces[self.random.random_range(0..self.pieces.len())].as_bytes().to_vec(),
        }
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let at = self.random.random_range(0..=input.len());
        let until = self.random.random_range(at..=input.len().min(at + 32));
        match self.random.random_range(0..6) {
            0 => drop(input.drain(at..until)),
            1 => drop(input.splice(at..at, self.piece())),
            2 => drop(input.splice(at..until, self.piece())),
            3 => {
                let copied = input[at..until].to_vec();
                drop(input.splice(at..at, copied));
            }
            4 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.random.random_range(0..8);
                }
            }
            _ => {
                let other = self.older();
                input.truncate(at);
                input.extend_from_slice(&other[other.len().min(at)..]);
            }
        }
    }
}
