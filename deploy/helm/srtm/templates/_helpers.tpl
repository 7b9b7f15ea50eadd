{{- define "srtm.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "srtm.labels" -}}
app.kubernetes.io/name: srtm
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "srtm.pod" -}}
enableServiceLinks: false
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "srtm.container" -}}
image: {{ include "srtm.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}
{{- define "srtm.token" -}}
- name: SRTM_TOKEN
  valueFrom: {secretKeyRef: {name: {{ .Values.secret }}, key: token}}
{{- end }}
