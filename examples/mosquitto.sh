#!/bin/sh
# Publish five readings with mosquitto_pub, and print what mosquitto_sub gets of them.
#
#     examples/mosquitto.sh [HOST [PORT]]      (127.0.0.1 1883)
set -eu
host=${1:-127.0.0.1} port=${2:-1883} name=plant/7/heat

# Leaves a session at the broker, which keeps the readings for mosquitto_sub below.
mosquitto_sub -h "$host" -p "$port" -i example-mosquitto -c -q 1 -t "$name" -E
for celsius in 17.5 17.6 17.8 18.1 18.0; do
    mosquitto_pub -h "$host" -p "$port" -q 1 -t "$name" -m "$celsius"
done
mosquitto_sub -h "$host" -p "$port" -i example-mosquitto -c -q 1 -t "$name" -C 5 -W 10
