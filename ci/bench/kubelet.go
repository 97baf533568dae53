// A kubelet as far as device plugins see one, with a stopwatch.
//
// It is driven by lines on stdin and answers each with one line of JSON on stdout; times are
// nanoseconds, absolute ones of the wall clock. It dials plugins with grpc-go and the kubelet's
// options, so that what it measures is what a kubelet would wait for.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	resources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const patience = 60 * time.Second

type known struct {
	Resource   string   `json:"resource"`
	Devices    []string `json:"devices"`
	Appeared   int64    `json:"appeared"`
	Registered int64    `json:"registered"`
	Listed     int64    `json:"listed"`
}

// Nobody holds anything.
type lister struct {
	resources.UnimplementedPodResourcesListerServer
}

func (lister) List(context.Context, *resources.ListPodResourcesRequest) (*resources.ListPodResourcesResponse, error) {
	return &resources.ListPodResourcesResponse{}, nil
}

type kubelet struct {
	api.UnimplementedRegistrationServer
	directory string
	servers   []*grpc.Server
	appeared  int64
	connected *grpc.ClientConn
	plugin    api.DevicePluginClient
	listed    chan known
}

func (k *kubelet) Register(ctx context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	registered := time.Now().UnixNano()
	connection, err := grpc.NewClient("unix://"+filepath.Join(k.directory, "device-plugins", r.Endpoint),
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	plugin := api.NewDevicePluginClient(connection)
	if _, err := plugin.GetDevicePluginOptions(ctx, &api.Empty{}, grpc.WaitForReady(true)); err != nil {
		return nil, err
	}
	go k.watch(connection, plugin, r.ResourceName, registered)
	return &api.Empty{}, nil
}

func (k *kubelet) watch(c *grpc.ClientConn, p api.DevicePluginClient, resource string, registered int64) {
	stream, err := p.ListAndWatch(context.Background(), &api.Empty{})
	if err != nil {
		return
	}
	for first := true; ; first = false {
		list, err := stream.Recv()
		if err != nil {
			return
		}
		if !first {
			continue
		}
		found := known{Resource: resource, Appeared: k.appeared, Registered: registered,
			Listed: time.Now().UnixNano()}
		for _, device := range list.Devices {
			found.Devices = append(found.Devices, device.ID)
		}
		k.connected, k.plugin = c, p
		k.listed <- found
	}
}

// Start as a kubelet does: delete all sockets of plugins, then create the own ones.
func (k *kubelet) start() error {
	if k.connected != nil {
		k.connected.Close()
		k.connected = nil
	}
	for _, server := range k.servers {
		server.Stop()
	}
	plugins := filepath.Join(k.directory, "device-plugins")
	entries, err := os.ReadDir(plugins)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Type()&os.ModeSocket != 0 {
			os.Remove(filepath.Join(plugins, entry.Name()))
		}
	}
	answers, registers := grpc.NewServer(), grpc.NewServer()
	resources.RegisterPodResourcesListerServer(answers, lister{})
	api.RegisterRegistrationServer(registers, k)
	k.servers = []*grpc.Server{answers, registers}
	if err := serve(answers, filepath.Join(k.directory, "pod-resources")); err != nil {
		return err
	}
	k.appeared = time.Now().UnixNano()
	return serve(registers, plugins)
}

func serve(server *grpc.Server, directory string) error {
	path := filepath.Join(directory, "kubelet.sock")
	os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err == nil {
		go server.Serve(listener)
	}
	return err
}

func (k *kubelet) await() (known, error) {
	select {
	case found := <-k.listed:
		return found, nil
	case <-time.After(patience):
		return known{}, fmt.Errorf("no device list within %s", patience)
	}
}

func (k *kubelet) allocate(device string, calls int, pause time.Duration) ([]int64, error) {
	took := make([]int64, 0, calls)
	for range calls {
		request := &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{
			{DevicesIds: []string{device}}}}
		begin := time.Now()
		if _, err := k.plugin.Allocate(context.Background(), request); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begin).Nanoseconds())
		time.Sleep(pause)
	}
	return took, nil
}

type order struct {
	Do     string `json:"do"`
	Device string `json:"device"`
	Calls  int    `json:"calls"`
	Pause  int64  `json:"pause"`
}

func (k *kubelet) obey(o order) (any, error) {
	switch o.Do {
	case "start":
		return struct{}{}, k.start()
	case "await":
		return k.await()
	case "allocate":
		return k.allocate(o.Device, o.Calls, time.Duration(o.Pause))
	}
	return nil, fmt.Errorf("%q is no order", o.Do)
}

func main() {
	k := &kubelet{directory: os.Args[1], listed: make(chan known, 16)}
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var o order
		err := json.Unmarshal(lines.Bytes(), &o)
		var answer any
		if err == nil {
			answer, err = k.obey(o)
		}
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		out.Encode(answer)
	}
}
