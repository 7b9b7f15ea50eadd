// Read a topic with go-nsq, which knows nothing of SRTM: it finds the brokers at the distributor, as at nsqlookupd.
//
//	go run . [TOPIC [CHANNEL [COUNT]]]
//
// $SRTM_DISTRIBUTOR: the distributor's URL.
package main

import (
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nsqio/go-nsq"
)

func argument(index int, otherwise string) string {
	if len(os.Args) > index {
		return os.Args[index]
	}
	return otherwise
}

func main() {
	count, err := strconv.Atoi(argument(3, "5"))
	if err != nil {
		log.Fatal(err)
	}
	url := os.Getenv("SRTM_DISTRIBUTOR")
	if url == "" {
		url = "http://127.0.0.1:4190"
	}

	config := nsq.NewConfig()
	config.MaxInFlight = 200 // shared by all brokers of the topic
	config.LookupdPollInterval = time.Second
	consumer, err := nsq.NewConsumer(argument(1, "la-highways"), argument(2, "archive"), config)
	if err != nil {
		log.Fatal(err)
	}
	consumer.SetLoggerLevel(nsq.LogLevelError)
	var left atomic.Int64
	left.Store(int64(count))
	done := make(chan struct{})
	consumer.AddHandler(nsq.HandlerFunc(func(message *nsq.Message) error {
		now := left.Add(-1)
		if now < 0 { // enough: for other consumers
			message.RequeueWithoutBackoff(0)
			return nil
		}
		fmt.Println(string(message.Body))
		if now == 0 {
			close(done)
		}
		return nil // finishes the message
	}))
	if err := consumer.ConnectToNSQLookupd(strings.TrimPrefix(url, "http://")); err != nil {
		log.Fatal(err)
	}
	<-done
	consumer.Stop()
	<-consumer.StopChan
}
