// Enforces NetworkPolicies on one node, by iptables and ipsets of the network namespace that it runs in: kube-router's
// controller without kube-router. Nothing is enforced any more after SIGTERM.
package main

import (
	"flag"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "")
	node := flag.String("node", "", "name of the node whose pods are here")
	flag.Parse()
	config := options.NewKubeRouterConfig()
	config.HostnameOverride, config.IPTablesSyncPeriod = *node, 2*time.Second
	config.ClusterIPCIDRs, config.NodePortRange = []string{"10.96.0.0/16"}, "30000-32767"
	config.EnableIPv4, config.EnableIPv6 = true, false
	access, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	must(err)
	client, err := kubernetes.NewForConfig(access)
	must(err)

	stop := make(chan struct{})
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	spaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	commands, sets, err := netpol.NewIPTablesHandlers(config)
	must(err)
	controller, err := netpol.NewNetworkPolicyController(client, config, pods, policies, spaces, &sync.Mutex{}, commands, sets)
	must(err)
	factory.Start(stop)
	if !cache.WaitForCacheSync(stop, pods.HasSynced, spaces.HasSynced, policies.HasSynced) {
		log.Fatal("the caches do not fill")
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods: controller.PodEventHandler, spaces: controller.NamespaceEventHandler, policies: controller.NetworkPolicyEventHandler,
	} {
		_, err = informer.AddEventHandler(handler)
		must(err)
	}
	beats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range beats {
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	go controller.Run(beats, stop, &running)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
	close(stop)
	running.Wait()
	controller.Cleanup()
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
