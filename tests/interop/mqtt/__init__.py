"""MQTT's own judges: Eclipse Paho's interoperability suites, clients of others, and Mosquitto as a bridge, each against
one broker. ``__main__`` runs them, ``sources`` says where each comes from."""
