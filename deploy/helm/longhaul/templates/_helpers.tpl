{{/* Name of the release's objects, without their component: the release's name if that contains the chart's. */}}
{{- define "longhaul.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that select the pods of a component. Takes (list $ "api"). */}}
{{- define "longhaul.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of an object of a component. Takes (list $ "api"). */}}
{{- define "longhaul.labels" -}}
{{- $root := index . 0 -}}
{{ include "longhaul.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "longhaul.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* The start of every pod's spec. */}}
{{- define "longhaul.pod" -}}
{{- with .Values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
# No process calls the Kubernetes API.
automountServiceAccountToken: false
# No variables of other services, which are named like settings.
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- end -}}

{{/* The start of every container. */}}
{{- define "longhaul.container" -}}
image: {{ include "longhaul.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
{{- end -}}

{{/* Placement of the pods of a component. Takes (list $ "api"). */}}
{{- define "longhaul.placement" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $values := index $root.Values $component -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "longhaul.selector" . | nindent 8 }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A variable from the existing secret. Takes (list $ "DATABASE_URL" "databaseUrl"). */}}
{{- define "longhaul.secretEnv" -}}
{{- $root := index . 0 -}}
{{- $key := index . 2 -}}
- name: {{ index . 1 }}
  valueFrom:
    secretKeyRef:
      name: {{ $root.Values.secret.name }}
      key: {{ index $root.Values.secret.keys $key }}
      {{- if eq $key "llmApiKey" }}
      optional: true
      {{- end }}
{{- end -}}

{{/* Variables of API and workers. */}}
{{- define "longhaul.env" -}}
{{ include "longhaul.secretEnv" (list . "DATABASE_URL" "databaseUrl") }}
{{ include "longhaul.secretEnv" (list . "REDIS_URL" "redisUrl") }}
{{- if .Values.config }}
- name: LONGHAUL_CONFIG
  value: /etc/longhaul/config.toml
{{- end }}
{{- if .Values.llm.url }}
# The API too knows the provider, for its prices; only workers have the key.
- name: LONGHAUL_LLM_URL
  value: {{ .Values.llm.url | quote }}
- name: LONGHAUL_LLM_MODEL
  value: {{ required "llm.model is needed with llm.url" .Values.llm.model | quote }}
{{- end }}
{{- with .Values.otlpEndpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
{{- end }}
# The API takes it for the size of a worker while none lives.
- name: LONGHAUL__WORKER__CONCURRENCY
  value: {{ int64 .Values.worker.concurrency | quote }}
{{- if .Values.sandbox.enabled }}
- name: LONGHAUL__SANDBOX__URL
  value: http://{{ include "longhaul.name" . }}-sandbox:{{ int64 .Values.sandbox.port }}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Mounts and volumes of API and workers. The root file system is read-only. */}}
{{- define "longhaul.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if .Values.config }}
- {name: config, mountPath: /etc/longhaul, readOnly: true}
{{- end }}
{{- end -}}

{{- define "longhaul.volumes" -}}
- name: tmp
  emptyDir: {}
{{- if .Values.config }}
- name: config
  configMap:
    name: {{ include "longhaul.name" . }}
{{- end }}
{{- end -}}

{{/* Annotations of a pod: a change of the settings replaces it. Takes (list $ "api"). */}}
{{- define "longhaul.podAnnotations" -}}
{{- $root := index . 0 -}}
{{- $values := index $root.Values (index . 1) -}}
{{- if $root.Values.config }}
checksum/config: {{ sha256sum $root.Values.config }}
{{- end }}
{{- with $values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A PodDisruptionBudget. A pod that is not ready may always be evicted: it does no work. */}}
{{- define "longhaul.podDisruptionBudget" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "longhaul.name" $root }}-{{ $component }}
  labels:
    {{- include "longhaul.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ (index $root.Values $component).podDisruptionBudget.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "longhaul.selector" . | nindent 6 }}
{{- end -}}
