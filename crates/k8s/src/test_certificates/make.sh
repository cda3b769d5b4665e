#!/bin/sh
# Makes the certificates and keys in this directory, which only tests use. They are valid for 100 years.
set -eu
cd "$(dirname "$0")"
ec="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"

authority() {
    openssl req -x509 $ec -subj "/CN=$1" -days 36500 -addext keyUsage=critical,keyCertSign -keyout "$1.ca-key" -out "$1.crt"
}

# A certificate by the first authority. The extension says what it is for.
signed() {
    openssl req -new $ec -subj "/CN=$1" -keyout "$1.key" -out "$1.csr"
    echo "$2" > "$1.ext"
    openssl x509 -req -in "$1.csr" -CA authority.crt -CAkey authority.ca-key -CAcreateserial -days 36500 -extfile "$1.ext" -out "$1.crt"
}

authority authority
authority stranger
signed router subjectAltName=DNS:router.internal
signed server subjectAltName=IP:127.0.0.1
signed client extendedKeyUsage=clientAuth
rm -f ./*.ca-key ./*.csr ./*.ext ./*.srl
