// paho.golang, MQTT 5.0: what checks.py asks of each client. The last line says what came of it.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/eclipse/paho.golang/paho"
	"golang.org/x/net/websocket"
)

const wait = 10 * time.Second

type message struct {
	name, payload string
	qos           byte
	retained      bool
}

type link struct {
	client   *paho.Client
	conn     net.Conn
	messages chan message
	resumed  bool
}

type wish struct {
	transport string
	kept      bool
	will      *paho.WillMessage
}

func dial(transport string) (net.Conn, error) {
	switch transport {
	case "tls":
		pem, err := os.ReadFile(os.Getenv("MQTT_CA"))
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		return tls.Dial("tcp", "127.0.0.1:"+os.Getenv("MQTTS_PORT"), &tls.Config{RootCAs: roots})
	case "ws":
		address := "127.0.0.1:" + os.Getenv("MQTT_WS_PORT")
		config, err := websocket.NewConfig("ws://"+address+"/", "http://"+address)
		if err != nil {
			return nil, err
		}
		config.Protocol = []string{"mqtt"}
		conn, err := websocket.DialConfig(config)
		if err != nil {
			return nil, err
		}
		conn.PayloadType = websocket.BinaryFrame
		return conn, nil
	}
	return net.Dial("tcp", "127.0.0.1:"+os.Getenv("MQTT_PORT"))
}

func open(ctx context.Context, part string, wanted wish) (*link, error) {
	conn, err := dial(wanted.transport)
	if err != nil {
		return nil, err
	}
	opened := &link{conn: conn, messages: make(chan message, 100)}
	opened.client = paho.NewClient(paho.ClientConfig{
		Conn: conn,
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(came paho.PublishReceived) (bool, error) {
			packet := came.Packet
			opened.messages <- message{packet.Topic, string(packet.Payload), packet.QoS, packet.Retain}
			return true, nil
		}},
	})
	connect := &paho.Connect{ClientID: "golang-" + part, KeepAlive: 30, CleanStart: !wanted.kept, WillMessage: wanted.will}
	if wanted.kept {
		seconds := uint32(600)
		connect.Properties = &paho.ConnectProperties{SessionExpiryInterval: &seconds}
	}
	answer, err := opened.client.Connect(ctx, connect)
	if err != nil {
		return nil, err
	}
	opened.resumed = answer.SessionPresent
	return opened, nil
}

func (it *link) subscribe(ctx context.Context, pattern string, qos byte) error {
	_, err := it.client.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: pattern, QoS: qos}}})
	return err
}

func (it *link) publish(ctx context.Context, name, payload string, qos byte, retain bool) error {
	_, err := it.client.Publish(ctx, &paho.Publish{Topic: name, Payload: []byte(payload), QoS: qos, Retain: retain})
	return err
}

func (it *link) expect(ctx context.Context, wanted message) error {
	select {
	case came := <-it.messages:
		if came != wanted {
			return fmt.Errorf("%v came instead of %v", came, wanted)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%v did not come", wanted)
	}
}

func (it *link) close() { _ = it.client.Disconnect(&paho.Disconnect{}) }

func roundTrip(transport string, qos byte) func(context.Context) error {
	return func(ctx context.Context) error {
		name := fmt.Sprintf("golang/%s/%d", transport, qos)
		it, err := open(ctx, fmt.Sprintf("%s%d", transport, qos), wish{transport: transport})
		if err != nil {
			return err
		}
		defer it.close()
		if err := it.subscribe(ctx, name, qos); err != nil {
			return err
		}
		for number := range 10 {
			if err := it.publish(ctx, name, fmt.Sprint(number), qos, false); err != nil {
				return err
			}
			if err := it.expect(ctx, message{name, fmt.Sprint(number), qos, false}); err != nil {
				return err
			}
		}
		return nil
	}
}

func will(ctx context.Context) error {
	heir, err := open(ctx, "heir", wish{})
	if err != nil {
		return err
	}
	defer heir.close()
	if err := heir.subscribe(ctx, "golang/will", 1); err != nil {
		return err
	}
	last := &paho.WillMessage{Topic: "golang/will", Payload: []byte("gone"), QoS: 1}
	dying, err := open(ctx, "dying", wish{will: last})
	if err != nil {
		return err
	}
	dying.conn.Close()
	return heir.expect(ctx, message{"golang/will", "gone", 1, false})
}

func retained(ctx context.Context) error {
	teller, err := open(ctx, "teller", wish{})
	if err != nil {
		return err
	}
	defer teller.close()
	if err := teller.publish(ctx, "golang/retained", "kept", 1, true); err != nil {
		return err
	}
	late, err := open(ctx, "late", wish{})
	if err != nil {
		return err
	}
	defer late.close()
	if err := late.subscribe(ctx, "golang/retained", 1); err != nil {
		return err
	}
	if err := late.expect(ctx, message{"golang/retained", "kept", 1, true}); err != nil {
		return err
	}
	return teller.publish(ctx, "golang/retained", "", 1, true)
}

func session(ctx context.Context) error {
	first, err := open(ctx, "sleeper", wish{kept: true})
	if err != nil {
		return err
	}
	if err := first.subscribe(ctx, "golang/session", 1); err != nil {
		return err
	}
	first.close()
	waker, err := open(ctx, "waker", wish{})
	if err != nil {
		return err
	}
	defer waker.close()
	if err := waker.publish(ctx, "golang/session", "while away", 1, false); err != nil {
		return err
	}
	again, err := open(ctx, "sleeper", wish{kept: true})
	if err != nil {
		return err
	}
	if !again.resumed {
		return fmt.Errorf("the broker did not have the session")
	}
	if err := again.expect(ctx, message{"golang/session", "while away", 1, false}); err != nil {
		return err
	}
	again.close()
	ended, err := open(ctx, "sleeper", wish{}) // ends the session
	if err == nil {
		ended.close()
	}
	return err
}

func shared(ctx context.Context) error {
	came := make(chan message, 100)
	for number := range 2 {
		member, err := open(ctx, fmt.Sprintf("member%d", number), wish{})
		if err != nil {
			return err
		}
		defer member.close()
		go func() {
			for {
				select {
				case one := <-member.messages:
					came <- one
				case <-ctx.Done():
					return
				}
			}
		}()
		if err := member.subscribe(ctx, "$share/golang/golang/shared", 1); err != nil {
			return err
		}
	}
	sharer, err := open(ctx, "sharer", wish{})
	if err != nil {
		return err
	}
	defer sharer.close()
	var sent, found []string
	for number := range 20 {
		sent = append(sent, fmt.Sprintf("%02d", number))
		if err := sharer.publish(ctx, "golang/shared", sent[number], 1, false); err != nil {
			return err
		}
	}
	for range sent {
		select {
		case one := <-came:
			found = append(found, one.payload)
		case <-ctx.Done():
			return fmt.Errorf("only %v came", found)
		}
	}
	slices.Sort(found)
	if !slices.Equal(found, sent) {
		return fmt.Errorf("%v came instead of %v", found, sent)
	}
	return nil
}

type outcome struct {
	Name    string  `json:"name"`
	Passed  bool    `json:"passed"`
	Seconds float64 `json:"seconds"`
	Why     string  `json:"why"`
}

func main() {
	checks := []struct {
		name string
		ask  func(context.Context) error
	}{
		{"QoS 0", roundTrip("tcp", 0)}, {"QoS 1", roundTrip("tcp", 1)}, {"QoS 2", roundTrip("tcp", 2)},
		{"will", will}, {"retained", retained}, {"session resumed", session}, {"shared subscription", shared},
		{"TLS", roundTrip("tls", 1)}, {"WebSocket", roundTrip("ws", 1)},
	}
	var outcomes []outcome
	for _, check := range checks {
		started := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		err := check.ask(ctx)
		cancel()
		one := outcome{Name: check.name, Passed: err == nil, Seconds: time.Since(started).Seconds()}
		if err != nil {
			one.Why = err.Error()
		}
		outcomes = append(outcomes, one)
	}
	_ = json.NewEncoder(os.Stdout).Encode(outcomes)
}
