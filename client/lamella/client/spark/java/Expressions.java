package lamella;

import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryExpression;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.UnaryExpression;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Seq;

/** Catalyst expressions as text: one call of the JVM, where reading them one by one takes a call for each part. */
public final class Expressions {
    private static final int MAX_NODES = 4000;
    private static final int MAX_DEPTH = 200;

    /**
     * Returns the time zone and a list of expressions as JSON; null: they are too large. A node is a list: its class, its Spark type, its
     * form ("u": one child, "b": two, "": others), its children, and the name of a column or the value of a constant,
     * in a list of its own. A value that has no exact JSON is left out.
     */
    public String text(Seq expressions, SQLConf settings) {
        StringBuilder out = new StringBuilder("[");
        quote(settings.sessionLocalTimeZone(), out);
        int[] left = new int[] {MAX_NODES};
        for (int at = 0; at < expressions.size(); at++) {
            out.append(',');
            if (!write((Expression) expressions.apply(at), out, left, 0)) {
                return null;
            }
        }
        return out.append(']').toString();
    }

    private static boolean write(Expression e, StringBuilder out, int[] left, int depth) {
        left[0]--;
        if (left[0] < 0 || depth > MAX_DEPTH) {
            return false;
        }
        out.append('[');
        quote(e.getClass().getSimpleName(), out);
        out.append(',');
        quote(typeName(e), out);
        out.append(e instanceof UnaryExpression ? ",\"u\",[" : e instanceof BinaryExpression ? ",\"b\",[" : ",\"\",[");
        Seq children = e.children();
        for (int at = 0; at < children.size(); at++) {
            if (at > 0) {
                out.append(',');
            }
            if (!write((Expression) children.apply(at), out, left, depth + 1)) {
                return false;
            }
        }
        out.append("],[");
        if (e instanceof AttributeReference) {
            quote(((AttributeReference) e).name(), out);
        } else if (e instanceof Literal) {
            value(((Literal) e).value(), out);
        }
        out.append("]]");
        return true;
    }

    /** Returns the name of a type; empty: the expression has none, or none yet. */
    private static String typeName(Expression e) {
        try {
            return e.dataType().typeName();
        } catch (RuntimeException error) {
            return "";
        }
    }

    private static void value(Object value, StringBuilder out) {
        if (value == null) {
            out.append("null");
        } else if (value instanceof Boolean || value instanceof Integer || value instanceof Long) {
            out.append(value.toString());
        } else if (value instanceof Short || value instanceof Byte) {
            out.append(value.toString());
        } else if (value instanceof UTF8String || value instanceof Decimal) {
            quote(value.toString(), out);
        }
    }

    /** Appends a string of JSON. */
    public static void quote(String text, StringBuilder out) {
        out.append('"');
        for (int at = 0; at < text.length(); at++) {
            char c = text.charAt(at);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || Character.isSurrogate(c)) {
                String hex = Integer.toHexString(c);
                out.append("\\u").append("0000".substring(hex.length())).append(hex);
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
