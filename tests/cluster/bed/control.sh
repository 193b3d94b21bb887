#!/bin/bash
# The control plane of the bed, as processes of this machine.
#   control.sh up                    new certificates, empty etcd, everything started and ready
#   control.sh down                  everything stopped, its state removed
#   control.sh stop|start PROCESS    etcd, apiserver, controller-manager or scheduler dies / comes back with its state
set -euo pipefail
. "$(dirname "$0")/env.sh"
PROCESSES="etcd apiserver controller-manager"
[ "$MODE" != cluster ] || PROCESSES="$PROCESSES scheduler"

authority() { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "pki/$1.key" -out "pki/$1.crt" -subj "/CN=$1" -days 30 2>/dev/null; }
certificate() { # certificate FILE SUBJECT [AUTHORITY] [ALTERNATIVE NAMES]
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "pki/$1.key" -out "pki/$1.csr" -subj "$2" 2>/dev/null
  openssl x509 -req -in "pki/$1.csr" -CA "pki/${3:-ca}.crt" -CAkey "pki/${3:-ca}.key" -CAcreateserial -out "pki/$1.crt" -days 30 \
    ${4:+-extfile <(echo "subjectAltName=$4")} 2>/dev/null
}
kubeconfig() { # kubeconfig USER
  cat >"$1.conf" <<Y
apiVersion: v1
kind: Config
clusters: [{name: bed, cluster: {server: "https://$API_ADDRESS:$API_PORT", certificate-authority-data: $(base64 -w0 pki/ca.crt)}}]
users: [{name: user, user: {client-certificate-data: $(base64 -w0 "pki/$1.crt"), client-key-data: $(base64 -w0 "pki/$1.key")}}]
contexts: [{name: bed, context: {cluster: bed, user: user}}]
current-context: bed
Y
}
certificates() {
  authority ca; authority front
  openssl genrsa -out pki/sa.key 2048 2>/dev/null
  openssl rsa -in pki/sa.key -pubout -out pki/sa.pub 2>/dev/null
  certificate api /CN=kube-apiserver ca "IP:127.0.0.1,IP:$NET.1,IP:10.96.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
  certificate kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
  certificate proxy-client /CN=front-proxy-client front
  certificate admin /O=system:masters/CN=admin; kubeconfig admin
  local user; for user in controller-manager scheduler proxy; do certificate $user /CN=system:kube-$user; kubeconfig $user; done
}

start_etcd() {
  local client=http://127.0.0.1:$ETCD_PORT peer=http://127.0.0.1:$((ETCD_PORT + 1))
  start etcd etcd --data-dir etcd --listen-client-urls $client --advertise-client-urls $client \
    --listen-peer-urls $peer --initial-advertise-peer-urls $peer --initial-cluster default=$peer --unsafe-no-fsync
}
start_apiserver() {
  local here
  if [ "$MODE" = cluster ]; then
    here="--bind-address=0.0.0.0 --advertise-address=$API_ADDRESS --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction,PodNodeSelector"
  else
    here="--bind-address=127.0.0.1 --advertise-address=127.0.0.1 --endpoint-reconciler-type=none --authorization-mode=RBAC"
  fi
  start apiserver kube-apiserver --etcd-servers=http://127.0.0.1:$ETCD_PORT --secure-port=$API_PORT \
    --tls-cert-file=pki/api.crt --tls-private-key-file=pki/api.key --client-ca-file=pki/ca.crt --service-cluster-ip-range=10.96.0.0/16 \
    --service-account-issuer=https://kubernetes.default.svc --service-account-signing-key-file=pki/sa.key --service-account-key-file=pki/sa.pub \
    --kubelet-client-certificate=pki/kubelet-client.crt --kubelet-client-key=pki/kubelet-client.key --kubelet-preferred-address-types=InternalIP \
    --requestheader-client-ca-file=pki/front.crt --requestheader-allowed-names=front-proxy-client --requestheader-username-headers=X-Remote-User \
    --requestheader-group-headers=X-Remote-Group --requestheader-extra-headers-prefix=X-Remote-Extra- \
    --proxy-client-cert-file=pki/proxy-client.crt --proxy-client-key-file=pki/proxy-client.key \
    --audit-policy-file="$HERE/audit.yaml" --audit-log-path=log/audit.log --audit-log-maxsize=200 --audit-log-maxbackup=1 \
    --allow-privileged=true $here ${APISERVER_ARGS:-}
  wait_for 60 ready_or_dead
  alive apiserver || { tail -5 log/apiserver.log >&2; echo "kube-apiserver died: see $STATE/log/apiserver.log" >&2; exit 1; }
}
ready_or_dead() { ! alive apiserver || curl -sfk --max-time 5 "https://$API_ADDRESS:$API_PORT/readyz"; } # a kubectl costs ten of these
start_controller-manager() {
  local port=10257; [ "$MODE" = cluster ] || port=0
  start controller-manager kube-controller-manager --kubeconfig=controller-manager.conf --service-account-private-key-file=pki/sa.key \
    --root-ca-file=pki/ca.crt --use-service-account-credentials=true --cluster-signing-cert-file=pki/ca.crt --cluster-signing-key-file=pki/ca.key \
    --leader-elect=false --secure-port=$port --node-monitor-period=2s --node-monitor-grace-period=20s ${CONTROLLER_ARGS:-}
}
start_scheduler() {
  local port=10259; [ "$MODE" = cluster ] || port=0
  start scheduler kube-scheduler --kubeconfig=scheduler.conf --leader-elect=false --secure-port=$port
}

up() {
  certificates
  local process; for process in $PROCESSES; do start_$process; done
  kubectl -n default wait --for=create serviceaccount/default --timeout=30s >/dev/null # without it no pod can be made
}
down() {
  local process; for process in scheduler controller-manager apiserver etcd; do stop $process KILL; done
  rm -rf etcd pki log pid ./*.conf
}

mkdir -p "$STATE"/{pki,log,pid}; cd "$STATE"
case ${1:-} in
  up) up ;;
  down) down ;;
  stop) stop "$2" KILL ;;
  start) start_"$2" ;;
  *) sed -n '2,5s/^# *//p' "$0" >&2; exit 2 ;;
esac
