#!/bin/sh
# Make the network of compose.yaml: ./enrol.sh ALGORITHM.toml, then docker compose up. ./mail stands for e-mail between
# the sites: it holds public files only. It must be writable for user 10001, and data/NAME/samples.jsonl readable.
#
# Here one person plays all sites, so the fingerprint is passed on. Between real sites it is compared by telephone.
set -eu
algorithm=$1
cd "$(dirname "$0")"
mkdir -p mail
cp "$algorithm" mail/algorithm.toml

gossamer() { site=$1; shift; docker compose run --rm -T "$site" "$@"; }
send() { docker compose run --rm -T --entrypoint cp "$1" "$2" "$3"; }

gossamer coordinator network new /gossamer/state/coordinator --algorithm /mail/algorithm.toml \
    --member north=north:7400 --member south=south:7400 --member west=west:7400
send coordinator /gossamer/state/coordinator/agreement.json /mail/agreement.json
for site in north south west; do
    gossamer "$site" node join /mail/agreement.json /gossamer/state/node --member "$site" \
        --data /data/samples.jsonl --source "$site"
    send "$site" /gossamer/state/node/request.json "/mail/$site.json"
done
gossamer coordinator network admit /gossamer/state/coordinator /mail/north.json /mail/south.json /mail/west.json \
    | tee mail/admitted.txt
send coordinator /gossamer/state/coordinator/members.json /mail/members.json
fingerprint=$(sed -n 's/^All sites must see this fingerprint: //p' mail/admitted.txt)
for site in north south west; do
    gossamer "$site" node accept /gossamer/state/node /mail/members.json --fingerprint "$fingerprint"
done
