// A registry in memory on a free port of the loopback interface. It prints its address, and asks for
// the credentials given as its argument ("user:password") if there are any.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	inner := registry.New()
	user, password, guarded := strings.Cut(strings.Join(os.Args[1:], ""), ":")
	log.Fatal(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		givenUser, givenPassword, _ := r.BasicAuth()
		if guarded && (givenUser != user || givenPassword != password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	})))
}
