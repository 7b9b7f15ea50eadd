import static java.nio.charset.StandardCharsets.UTF_8;

import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt5.Mqtt5BlockingClient;
import com.hivemq.client.mqtt.mqtt5.Mqtt5BlockingClient.Mqtt5Publishes;
import com.hivemq.client.mqtt.mqtt5.Mqtt5Client;
import com.hivemq.client.mqtt.mqtt5.Mqtt5ClientBuilder;
import com.hivemq.client.mqtt.mqtt5.message.disconnect.Mqtt5DisconnectReasonCode;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import java.io.FileInputStream;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.TrustManagerFactory;

/** HiveMQ's client, MQTT 5.0: what checks.py asks of each client. The last line says what came of it. */
public final class Client {
    private static final long WAIT_S = 10;

    private interface Check {
        void ask() throws Exception;
    }

    /** A client that is connected, and what comes to it. */
    private static final class Link implements AutoCloseable {
        final Mqtt5BlockingClient client;
        final Mqtt5Publishes came;
        boolean resumed;

        Link(String part, String transport) throws Exception {
            Mqtt5ClientBuilder builder = Mqtt5Client.builder().identifier("hivemq-" + part).serverHost("127.0.0.1");
            switch (transport) {
                case "tls" -> builder = builder.serverPort(port("MQTTS_PORT")).sslConfig().trustManagerFactory(trust()).applySslConfig();
                case "ws" -> builder = builder.serverPort(port("MQTT_WS_PORT")).webSocketConfig().serverPath("mqtt").applyWebSocketConfig();
                default -> builder = builder.serverPort(port("MQTT_PORT"));
            }
            client = builder.buildBlocking();
            came = client.publishes(MqttGlobalPublishFilter.ALL);
        }

        static Link open(String part, String transport) throws Exception {
            Link link = new Link(part, transport);
            link.client.connectWith().cleanStart(true).send();
            return link;
        }

        static Link open(String part) throws Exception {
            return open(part, "tcp");
        }

        static Link kept(String part) throws Exception {
            Link link = new Link(part, "tcp");
            link.resumed = link.client.connectWith().cleanStart(false).sessionExpiryInterval(600).send().isSessionPresent();
            return link;
        }

        static Link mortal(String part, String name, String payload) throws Exception {
            Link link = new Link(part, "tcp");
            link.client.connectWith().willPublish().topic(name).payload(payload.getBytes(UTF_8)).qos(MqttQos.AT_LEAST_ONCE)
                    .applyWillPublish().send();
            return link;
        }

        void subscribe(String pattern, int qos) {
            client.subscribeWith().topicFilter(pattern).qos(MqttQos.fromCode(qos)).send();
        }

        void publish(String name, String payload, int qos, boolean retain) {
            client.publishWith().topic(name).payload(payload.getBytes(UTF_8)).qos(MqttQos.fromCode(qos)).retain(retain).send();
        }

        Mqtt5Publish next() throws Exception {
            return came.receive(WAIT_S, TimeUnit.SECONDS).orElseThrow(() -> new Exception("nothing came"));
        }

        void expect(String name, String payload, int qos, boolean retained) throws Exception {
            Mqtt5Publish one = next();
            same(one.getTopic() + " " + text(one) + " " + one.getQos().getCode() + " " + one.isRetain(),
                    name + " " + payload + " " + qos + " " + retained);
        }

        @Override
        public void close() {
            client.disconnect();
        }
    }

    private static int port(String variable) {
        return Integer.parseInt(System.getenv(variable));
    }

    private static String text(Mqtt5Publish message) {
        return new String(message.getPayloadAsBytes(), UTF_8);
    }

    private static void same(Object found, Object wanted) throws Exception {
        if (!found.equals(wanted)) {
            throw new Exception(found + " is not " + wanted);
        }
    }

    private static TrustManagerFactory trust() throws Exception {
        KeyStore roots = KeyStore.getInstance(KeyStore.getDefaultType());
        roots.load(null, null);
        try (FileInputStream file = new FileInputStream(System.getenv("MQTT_CA"))) {
            roots.setCertificateEntry("interop", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(roots);
        return factory;
    }

    private static Check roundTrip(String transport, int qos) {
        return () -> {
            String name = "hivemq/" + transport + "/" + qos;
            try (Link link = Link.open(transport + qos, transport)) {
                link.subscribe(name, qos);
                for (int number = 0; number < 10; number++) {
                    link.publish(name, "" + number, qos, false);
                    link.expect(name, "" + number, qos, false);
                }
            }
        };
    }

    private static void will() throws Exception {
        try (Link heir = Link.open("heir")) {
            heir.subscribe("hivemq/will", 1);
            // It has no way to die: 5.0 lets a client ask for its will when it leaves.
            Link dying = Link.mortal("dying", "hivemq/will", "gone");
            dying.client.disconnectWith().reasonCode(Mqtt5DisconnectReasonCode.DISCONNECT_WITH_WILL_MESSAGE).send();
            heir.expect("hivemq/will", "gone", 1, false);
        }
    }

    private static void retained() throws Exception {
        try (Link teller = Link.open("teller"); Link late = Link.open("late")) {
            teller.publish("hivemq/retained", "kept", 1, true);
            late.subscribe("hivemq/retained", 1);
            late.expect("hivemq/retained", "kept", 1, true);
            teller.publish("hivemq/retained", "", 1, true);
        }
    }

    private static void session() throws Exception {
        try (Link first = Link.kept("sleeper")) {
            first.subscribe("hivemq/session", 1);
        }
        try (Link waker = Link.open("waker")) {
            waker.publish("hivemq/session", "while away", 1, false);
        }
        try (Link again = Link.kept("sleeper")) {
            same(again.resumed, true);
            again.expect("hivemq/session", "while away", 1, false);
        }
        Link.open("sleeper").close(); // ends the session
    }

    private static void shared() throws Exception {
        try (Link one = Link.open("member0"); Link other = Link.open("member1"); Link sharer = Link.open("sharer")) {
            List<Integer> came = Collections.synchronizedList(new ArrayList<>());
            CountDownLatch all = new CountDownLatch(20);
            for (Link member : List.of(one, other)) {
                member.client.toAsync().publishes(MqttGlobalPublishFilter.ALL, message -> {
                    came.add(Integer.valueOf(text(message)));
                    all.countDown();
                });
                member.subscribe("$share/hivemq/hivemq/shared", 1);
            }
            for (int number = 0; number < 20; number++) {
                sharer.publish("hivemq/shared", "" + number, 1, false);
            }
            same(all.await(WAIT_S, TimeUnit.SECONDS), true);
            same(new TreeSet<>(came).size(), 20);
            same(came.size(), 20);
        }
    }

    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ") + '"';
    }

    public static void main(String[] arguments) {
        Map<String, Check> checks = new LinkedHashMap<>();
        for (int qos = 0; qos < 3; qos++) {
            checks.put("QoS " + qos, roundTrip("tcp", qos));
        }
        checks.put("will", Client::will);
        checks.put("retained", Client::retained);
        checks.put("session resumed", Client::session);
        checks.put("shared subscription", Client::shared);
        checks.put("TLS", roundTrip("tls", 1));
        checks.put("WebSocket", roundTrip("ws", 1));
        List<String> outcomes = new ArrayList<>();
        checks.forEach((name, check) -> {
            long started = System.nanoTime();
            String why = "";
            try {
                check.ask();
            } catch (Exception error) {
                why = String.valueOf(error);
            }
            double seconds = (System.nanoTime() - started) / 1e9;
            outcomes.add("{\"name\": " + quoted(name) + ", \"passed\": " + why.isEmpty() + ", \"seconds\": " + seconds
                    + ", \"why\": " + quoted(why) + "}");
        });
        System.out.println("[" + String.join(", ", outcomes) + "]");
        System.exit(0);
    }
}
