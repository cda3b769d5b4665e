package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// relay joins two network namespaces: it takes connections from a listening socket that it inherited as descriptor 3
// and that belongs to the host's namespace, and dials the given address in its own. Go sets TCP_NODELAY on both sides
// and copies with splice(2), so that it costs next to nothing.
func relay(address string) error {
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return fmt.Errorf("descriptor 3 is no listening socket: %w", err)
	}
	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		go join(client.(*net.TCPConn), address)
	}
}

// join carries bytes both ways and passes on each side's end of stream by itself.
func join(client *net.TCPConn, address string) {
	defer client.Close()
	connection, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		// A reset, as a client would see it from a server that isn't there.
		client.SetLinger(0)
		fmt.Fprintln(os.Stderr, "relay:", err)
		return
	}
	defer connection.Close()
	server := connection.(*net.TCPConn)
	done := make(chan struct{}, 2)
	carry := func(to, from *net.TCPConn) {
		if _, err := io.Copy(to, from); err != nil {
			// One side is broken: the other must not wait for it.
			to.SetLinger(0)
			to.Close()
		}
		to.CloseWrite()
		done <- struct{}{}
	}
	go carry(server, client)
	go carry(client, server)
	<-done
	<-done
}
