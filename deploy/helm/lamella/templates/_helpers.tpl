{{- define "lamella.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "lamella.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 55 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "lamella.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 55 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 55 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "lamella.selectorLabels" -}}
app.kubernetes.io/name: {{ include "lamella.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lamella.labels" -}}
{{ include "lamella.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "lamella.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "lamella.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "lamella.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "lamella.secretName" -}}
{{- default (include "lamella.fullname" .) .Values.secrets.existingSecret -}}
{{- end -}}

{{- define "lamella.secretData" -}}
catalog: {{ .Values.secrets.catalog | quote }}
{{- with .Values.secrets.rootKeySha256 }}
root_key_sha256: {{ . | quote }}
{{- end }}
{{- with .Values.secrets.storeCredentials }}
store_credentials: {{ . | quote }}
{{- end }}
{{- with .Values.secrets.workerToken }}
worker_token: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* The service inside of the cluster. */}}
{{- define "lamella.url" -}}
{{- printf "http://%s:%v" (include "lamella.fullname" .) .Values.service.port -}}
{{- end -}}

{{/* A size of Kubernetes, as 20Gi, in bytes. */}}
{{- define "lamella.bytes" -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- $unit := regexFind "[a-zA-Z]*$" . -}}
{{- mulf (trimSuffix $unit . | float64) (get $units $unit) | int64 -}}
{{- end -}}

{{/* What must be given is given. */}}
{{- define "lamella.check" -}}
{{- $_ := required "settings.warehouse: where tables are, as s3://bucket/prefix" .Values.settings.warehouse -}}
{{- if not .Values.secrets.existingSecret -}}
{{- $_ := required "secrets.catalog (or secrets.existingSecret): the address of the PostgreSQL database" .Values.secrets.catalog -}}
{{- if .Values.settings.auth -}}
{{- $_ := required "secrets.rootKeySha256 (or secrets.existingSecret): the hash of the first API key; `lamella keys new` makes both" .Values.secrets.rootKeySha256 -}}
{{- end -}}
{{- if .Values.worker.enabled -}}
{{- $_ := required "secrets.workerToken (or secrets.existingSecret, or worker.enabled=false): an API key with the role maintain; for the first install the root key" .Values.secrets.workerToken -}}
{{- end -}}
{{- end -}}
{{- if and .Values.secrets.extraKeys (not .Values.secrets.existingSecret) -}}
{{- fail "secrets.extraKeys: keys of a Secret of your own (secrets.existingSecret); the one that the chart makes does not have them" -}}
{{- end -}}
{{- if .Values.cacheSize -}}
{{- if hasKey .Values.settings "cache_dir" -}}
{{- fail "settings.cache_dir: the chart sets it itself where cacheSize is set" -}}
{{- end -}}
{{- with .Values.settings.cache_dir_bytes -}}
{{- if ge (int64 .) (include "lamella.bytes" $.Values.cacheSize | int64) -}}
{{- fail "settings.cache_dir_bytes must be smaller than cacheSize, or Kubernetes evicts the pod when the cache is full" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.metrics.serviceMonitor -}}
{{- if and .enabled $.Values.settings.auth (not $.Values.settings.public_metrics) (not .authorization) -}}
{{- fail "metrics.serviceMonitor.authorization: where settings.public_metrics is off, /metrics wants an API key" -}}
{{- end -}}
{{- end -}}
{{- range $name := list "catalog" "root_key_sha256" "token_secret" "oidc_client_secret" "host" "port" "workers" -}}
{{- if hasKey $.Values.settings $name -}}
{{- fail (printf "settings.%s: the chart sets it itself, or it belongs into the Secret" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Settings as variables. Secrets are files, which the variables name. */}}
{{- define "lamella.env" -}}
- name: LAMELLA_HOST
  value: "0.0.0.0"
- name: LAMELLA_PORT
  value: "8181"
- name: LAMELLA_CATALOG_FILE
  value: /etc/lamella/secrets/catalog
{{- if .Values.settings.auth }}
- name: LAMELLA_ROOT_KEY_SHA256_FILE
  value: /etc/lamella/secrets/root_key_sha256
{{- end }}
{{- range $name, $value := .Values.settings }}
{{- if not (kindIs "invalid" $value) }}
- name: LAMELLA_{{ $name | upper }}
  {{- /* Numbers of a file are floats, of which toString makes 1.34217728e+08. */}}
  value: {{ ternary $value (toJson $value) (kindIs "string" $value) | quote }}
{{- end }}
{{- end }}
{{- range $name, $key := .Values.secrets.extraKeys }}
- name: LAMELLA_{{ $name | upper }}_FILE
  value: /etc/lamella/secrets/{{ $key }}
{{- end }}
{{- if .Values.cacheSize }}
- name: LAMELLA_CACHE_DIR
  value: /var/cache/lamella
{{- if kindIs "invalid" .Values.settings.cache_dir_bytes }}
- name: LAMELLA_CACHE_DIR_BYTES
  value: {{ mulf 0.9 (include "lamella.bytes" .Values.cacheSize) | floor | int64 | quote }}
{{- end }}
{{- end }}
{{ include "lamella.storeEnv" . }}
{{- end -}}

{{- define "lamella.storeEnv" -}}
{{- if or .Values.secrets.existingSecret .Values.secrets.storeCredentials -}}
- name: AWS_SHARED_CREDENTIALS_FILE
  value: /etc/lamella/secrets/store_credentials
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "lamella.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "lamella.containerSecurity" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
privileged: false
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "lamella.mounts" -}}
- name: tmp
  mountPath: /tmp
- name: secrets
  mountPath: /etc/lamella/secrets
  readOnly: true
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "lamella.secretVolume" -}}
{{- include "lamella.volumeOf" (list . (include "lamella.secretName" .)) -}}
{{- end -}}

{{/* Volumes of all pods: (list $ "name of the Secret"). */}}
{{- define "lamella.volumeOf" -}}
- name: secrets
  secret:
    secretName: {{ index . 1 }}
    defaultMode: 0440
{{- with (index . 0).Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Pods of one component apart from each other: (list $ "component"). */}}
{{- define "lamella.spread" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- if $root.Values.topologySpread.enabled -}}
topologySpreadConstraints:
  {{- range $root.Values.topologySpread.keys }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: {{ $root.Values.topologySpread.whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "lamella.selectorLabels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ $component }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "lamella.placement" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
