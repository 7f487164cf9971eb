// Servers that are made of other people's libraries, for tests/drivers/test_sdks.py:
//
//	program events SECRET      receives events, with the CloudEvents and the Standard Webhooks library
//	program lookback SETTINGS  answers checks of the look-back, with grpc-go
//
// Each prints {"port": …} first, then a JSON object for each request. The line "stop" on standard input ends a
// server gracefully; the end of standard input ends it at once.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"sync"
)

var printing sync.Mutex

func printLine(object any) {
	line, err := json.Marshal(object)
	if err != nil {
		log.Fatal(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Printf("%s\n", line)
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	printLine(map[string]int{"port": listener.Addr().(*net.TCPAddr).Port})
	return listener
}

// waitForEnd returns at the line "stop", and ends the program where standard input ends.
func waitForEnd() {
	if !bufio.NewScanner(os.Stdin).Scan() {
		os.Exit(0)
	}
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: program events SECRET | program lookback SETTINGS")
	}
	switch os.Args[1] {
	case "events":
		serveEvents(os.Args[2])
	case "lookback":
		serveLookback(os.Args[2])
	default:
		log.Fatalf("there is no %s", os.Args[1])
	}
}
