{{/* The image of every part. */}}
{{- define "onsale.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* The security of a pod: no token, no root, and no variables of other services, which would be read as settings. */}}
{{- define "onsale.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false  # QUEUE_PORT would be an address
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "onsale.container-security" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end -}}

{{/* Pods of a part stand on different machines where they can. */}}
{{- define "onsale.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {app: onsale, part: {{ . }}}}
{{- end -}}

{{/* The secret of a part: its own, or the one of all. A list of the context and the part's name. */}}
{{- define "onsale.secret" -}}
{{- $root := index . 0 -}}
{{- $root.Values.secret }}{{ if and $root.Values.secretPerService (ne (index . 1) "backup") }}-{{ index . 1 }}{{ end -}}
{{- end -}}

{{- define "onsale.volumes" -}}
- name: secrets
  secret: {secretName: {{ include "onsale.secret" . }}, defaultMode: 0440}
- name: scratch
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- end -}}

{{- define "onsale.mounts" -}}
- {name: secrets, mountPath: /run/secrets/onsale, readOnly: true}
- {name: scratch, mountPath: /tmp}
{{- end -}}

{{/* A disruption stops at most one pod of a part at a time. */}}
{{- define "onsale.disruption" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: {{ . }}, labels: {app: onsale, part: {{ . }}}}
spec:
  maxUnavailable: 1
  selector: {matchLabels: {app: onsale, part: {{ . }}}}
{{- end -}}

{{/* A job's pod: a list of the context, the part's name, its arguments. */}}
{{- define "onsale.job-pod" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $arguments := index . 2 -}}
metadata:
  labels: {app: onsale, part: {{ $name }}}
spec:
  {{- include "onsale.pod" $root | nindent 2 }}
  restartPolicy: OnFailure
  containers:
    - name: {{ $name }}
      image: {{ include "onsale.image" $root }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: {{ toJson $arguments }}
      envFrom: [{configMapRef: {name: onsale}}]
      resources:
        requests: {cpu: 100m, memory: 128Mi}
        limits: {memory: 512Mi}
      securityContext: {{ include "onsale.container-security" $root }}
      volumeMounts:
        {{- include "onsale.mounts" $root | nindent 8 }}
        {{- if ne $name "migrate" }}
        - {name: backups, mountPath: /backups}
        {{- end }}
  volumes:
    {{- include "onsale.volumes" (list $root (eq $name "migrate" | ternary "migrate" "backup")) | nindent 4 }}
    {{- if ne $name "migrate" }}
    - name: backups
      persistentVolumeClaim: {claimName: backups}
    {{- end }}
{{- end -}}

{{/* Succeeds once Valkey answers to its password. */}}
{{- define "onsale.valkey-ping" -}}
REDISCLI_AUTH=$(sed -n 's/^requirepass //p' /run/secrets/valkey/valkey_auth.conf) valkey-cli -e ping
{{- end -}}
