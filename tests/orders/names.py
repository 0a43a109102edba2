"""Names of shows in many scripts, and a very long word."""

NAMES = {
    "Chinese": "周杰倫「嘉年華」世界巡迴演唱會",
    "Japanese": "東京フィルハーモニー交響楽団 ベートーヴェンの夕べ",
    "Korean": "방탄소년단 월드투어 서울",
    "Thai": "เทศกาลดนตรีฤดูหนาวที่เขาใหญ่",
    "Lao": "ບຸນປີໃໝ່ລາວ",
    "Hebrew": "פסטיבל הג׳אז בים האדום",
    "Arabic": "مهرجان القاهرة الدولي للموسيقى",
    "Persian": "جشنوارهٔ موسیقی پگاه گیلان",
    "Amharic": "የአዲስ አበባ የጃዝ ምሽት",
    "Armenian": "Երևանի ջազ փառատոն",
    "Georgian": "თბილისის ჯაზ ფესტივალი",
    "Russian": "Лебединое озеро",
    "Greek": "Μουσική βραδιά στην Αθήνα",
    "Vietnamese": "Đêm nhạc Trịnh Công Sơn",
    "Polish": "Zażółć gęślą jaźń",
    "mixed": "Sigur Rós × 坂本龍一 × 조수미 × Αθήνα",
}
WORD_OF_68 = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamten"
